"""What a server allows: sizes, times and rates, who may ask, and how much was asked for."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from pydantic import BaseModel, Field

from regard.errors import ModelError, RegardError
from regard.text.lines import read_lines


class Limits(BaseModel, frozen=True):
    """What one request, and all of them together, may ask for; 0 where that is said to be no limit."""

    max_body: int = Field(2_000_000, ge=1000, description="bytes of a request")
    max_characters: int = Field(50_000, ge=1, description="characters of all texts of a request")
    max_texts: int = Field(128, ge=1, description="texts of a request")
    max_document: int = Field(20_000_000, ge=1000, description="bytes of a request that brings a document")
    max_documents: int = Field(256, ge=1, description="documents that are worked on or wait to be fetched")
    max_stored: int = Field(1_000_000_000, ge=1000, description="bytes of documents that lie on disk for this")
    max_waiting: int = Field(4096, ge=1, description="sentences that wait to be translated, of all requests")
    max_requests: int = Field(256, ge=1, description="requests that are worked on at once")
    max_seconds: float = Field(
        60.0, gt=0, description="seconds that a request may take, the reading of its body counted"
    )
    rate: int = Field(0, ge=0, description="requests a minute of one key, or of one address; 0: any number")
    quota: int = Field(
        0, ge=0, description="characters that each key may have translated while the server runs; 0: any"
    )


class Refused(RegardError):  # noqa: N818  (an answer, not a fault)
    """A request that is not served: the HTTP status says why, and the message how to go on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass
class Client:
    """Who asks, and how many characters it has had translated."""

    name: str
    characters: int = 0


class Clients:
    """Who may ask, and how much: keys by their digests, a rate and a quota for each."""

    def __init__(self, limits: Limits, keys: Path | None = None) -> None:
        """`keys` is a file of `new_key`'s lines; without one everybody may ask. Raises ModelError for other lines."""
        self._limits, self._lock = limits, threading.Lock()
        self._known = None if keys is None else dict(_entries(read_lines(keys), keys))
        self._seen: dict[str, Client] = {}
        self._window = MovingWindowRateLimiter(MemoryStorage())
        self._rate = parse(f"{limits.rate}/minute") if limits.rate else None

    @property
    def open(self) -> bool:
        """Whether nobody needs a key."""
        return self._known is None

    def admit(self, key: str, address: str) -> Client:
        """Who asks with this key from this address. Raises Refused: 403 for a wrong key, 429 for too many requests."""
        name = address
        if self._known is not None:
            digest = digest_of(key)
            name = next((name for known, name in self._known.items() if hmac.compare_digest(known, digest)), "")
            if not name:
                raise Refused(403, "Invalid API key" if key else "An API key is needed")
        if self._rate is not None and not self._window.hit(self._rate, name):
            raise Refused(429, f"Slowdown: {self._limits.rate} requests a minute are allowed")
        with self._lock:
            if len(self._seen) > 100_000 and self._known is None:  # addresses of strangers are not kept for ever
                self._seen.clear()
            return self._seen.setdefault(name, Client(name))

    def charge(self, client: Client, characters: int) -> None:
        """Counts what a client asks for. Raises Refused: 413 for one request that is too large, 456 above the quota."""
        most = self._limits.max_characters
        if characters > most:
            raise Refused(413, f"Invalid request: request ({characters}) exceeds text limit ({most})")
        self.count(client, characters)

    def count(self, client: Client, characters: int) -> None:
        """Counts characters of any number. Raises Refused (456) above the quota."""
        quota = self._limits.quota
        with self._lock:
            if quota and client.characters + characters > quota:
                raise Refused(456, f"Quota exceeded: {client.characters} of {quota} characters are used")
            client.characters += characters


def digest_of(key: str) -> str:
    """A key as it is kept. Keys are drawn, 256 bits of them, so a plain digest cannot be guessed back."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key(name: str, file: Path) -> str:
    """A new key, of which the digest and the name are added to the file; the key itself is kept nowhere."""
    if not name.isprintable() or not name.strip() or "\t" in name:
        raise ModelError(f"{name!r} cannot be the name of a key; use printable characters without tabs.")
    key = secrets.token_urlsafe(32)
    with file.open("a", encoding="utf-8") as out:
        out.write(f"{digest_of(key)}\t{name}\n")
    file.chmod(0o600)
    return key


def _entries(lines: Iterable[str], file: Path) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        digest, _, name = line.partition("\t")
        if len(digest) != 64 or not name:
            raise ModelError(
                f"{file}: line {number} is no key's; add keys with regard serve --new-key NAME --keys FILE."
            )
        yield digest, name
