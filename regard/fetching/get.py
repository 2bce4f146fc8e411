"""Fetch a data set from its official address: verified by checksum, resumed where it stopped, atomic."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import threading
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import FTPHandler, Request, build_opener

from regard.errors import FetchError
from regard.extensions import entry
from regard.machine import atomic_rename, digest

Progress = Callable[[str, int, int], None]  # (file, bytes there, bytes in all)

ATTEMPTS = 4  # connections to one file, of which each goes on where the last one broke off
PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
TIMEOUT = 30.0  # seconds without a byte, or without an answer
SLOWEST = 1024.0  # bytes a second, over TIMEOUT seconds; slower is as good as gone
BLOCK = 1 << 16
_NEITHER = "the address {!r} is neither https:// nor http:// and a host; give one of these."


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: its name here, and what it must be; where `packed`, what it must hold."""

    name: str
    size: int = 0  # bytes
    sha256: str = ""  # empty: not known, so that the file need only be there
    published: str = ""  # its path at the address, where that is not its name
    packed: bool = False  # a gzip file of what is published, or of no published file


@dataclass(frozen=True)
class Dataset:
    """Where a data set lives and what each of its files must be."""

    about: str
    address: str = ""  # a file's address is this, a slash and its name; empty: it is not served in this form
    files: tuple[RemoteFile, ...] = ()
    licence: str = ""
    made: str = ""  # from what it was made, where it is not served


def _sets() -> dict[str, Dataset]:
    read = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))
    return {
        name: Dataset(**{**told, "files": tuple(RemoteFile(**file) for file in told["files"])})
        for name, told in read.items()
    }


CATALOGUE: dict[str, Dataset] = _sets()


def get(
    name: str, out: str | Path, *, base: str | None = None, offline: bool = False, progress: Progress | None = None
) -> list[Path]:
    """The files of data set `name` in directory `out`, fetched where they are missing, in the catalogue's order.

    `base` replaces the official address (a mirror of the same files); `offline` opens no connection. Files already
    there are verified, never written. Raises FetchError for an unknown name, a wrong checksum, a file missing offline
    or of a set that nobody serves in this form, and a fetch that failed; what arrived of it is kept as `<file>.part`
    and the next call goes on from there.
    """
    data, folder = entry(CATALOGUE, name, "data set", FetchError), Path(out)
    address = (base or data.address).rstrip("/")
    if address:
        _check(address)
    try:
        missing = [file for file in data.files if not _verified(folder / file.name, file)]
        names = ", ".join(file.name for file in missing)
        if missing and not data.address:
            raise FetchError(f"{folder} lacks {names}, and {name} is not served in this form: it was made {data.made}.")
        if missing and offline:
            raise FetchError(
                f"offline, and {folder} lacks {names} of {name}; put these files there (from {address}/), or go online."
            )
        for file in missing:
            (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
            _fetch(f"{address}/{file.published or file.name}", folder, file, progress)
    except OSError as error:  # the disk's: those of the network are FetchErrors by now
        raise FetchError(f"cannot use the folder {folder}: {error}; free some space or choose another.") from error
    return [folder / file.name for file in data.files]


def _check(address: str) -> None:
    """Raises FetchError for an address that is not of the web."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.port == 0:
            raise FetchError(_NEITHER.format(address))
    except ValueError as error:  # brackets that do not close, a port that is no number
        raise FetchError(f"the address {address!r} is none ({error}); one is like https://example.org/data.") from None


def _verified(path: Path, file: RemoteFile) -> bool:
    """Whether the file is there and right; a file that is there and wrong is the user's to judge, so it is an error."""
    if not path.exists():
        return False
    if file.sha256 and (found := _digest_inside(path, file.size) if file.packed else digest(path)) != file.sha256:
        raise FetchError(
            f"{path} is not the published file: expected sha256 {file.sha256}, got {found}; "
            "move it away and run this again to fetch it anew."
        )
    return True


def _digest_inside(path: Path, size: int) -> str:
    """SHA-256 of what a gzip file holds, or why it has none; no more than a byte beyond `size` is unpacked."""
    try:
        with gzip.open(path) as inside:
            taken, left = hashlib.sha256(), size + 1
            while left and (block := inside.read(min(BLOCK, left))):
                taken.update(block)
                left -= len(block)
            return taken.hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"no gzip file ({error})"


def _fetch(url: str, folder: Path, file: RemoteFile, progress: Progress | None) -> None:
    part = folder / f"{file.name}.part"
    for _ in range(2 if _size(part) else 1):  # what is there may be of another version: begin anew
        _complete(url, part, file, progress)
        if (found := digest(part)) == file.sha256:
            if file.packed:
                packed = folder / f"{file.name}.packed"
                with open(part, "rb") as plain, gzip.open(packed, "wb", 6) as target:
                    shutil.copyfileobj(plain, target)
                atomic_rename(packed, folder / file.name)
                part.unlink()
            else:
                atomic_rename(part, folder / file.name)
            return
        part.unlink()
    raise FetchError(
        f"{file.name} from {url} is not the published file: expected sha256 {file.sha256}, got {found}; "
        "nothing was kept. Try again later or from another address."
    )


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


class _NetworkError(Exception):
    """A connection ended before the file did; trying again may help."""


def _complete(url: str, part: Path, file: RemoteFile, progress: Progress | None) -> None:
    """Fill `part` up to the file's size, over as many connections as it takes within ATTEMPTS."""
    if _size(part) > file.size:
        part.unlink()
    reason, attempt = "", 0
    while _size(part) < file.size:
        if attempt == ATTEMPTS:
            raise FetchError(
                f"fetching {url} stopped at {_size(part):,} of {file.size:,} bytes ({reason}); run this again to go on "
                "from there, or see to the network."
            )
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        attempt += 1
        try:
            response, there = _answer(url, part)
            with response, open(part, "ab" if there else "wb") as target:
                for block in _blocks(response, file.size - there):
                    there += target.write(block)
                    if progress:
                        progress(file.name, min(there, file.size), file.size)
        except _NetworkError as ended:
            reason = str(ended)


class _NoFTP(FTPHandler):
    """A redirection to ftp://, which the standard library follows, is refused."""

    def ftp_open(self, req: Request) -> NoReturn:
        raise FetchError(_NEITHER.format(req.full_url))


def _answer(url: str, part: Path) -> tuple[HTTPResponse, int]:
    """The answer, its headers read, and the byte of the file that it begins with, which `part` ends before.

    A server that takes longer than TIMEOUT for the headers is given up. A refusal that trying again does not change
    (404, 403) is a FetchError; for all else _NetworkError is raised.
    """
    there = _size(part)
    request = Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    asked: Future[HTTPResponse] = Future()

    def ask() -> None:
        try:
            asked.set_result(build_opener(_NoFTP).open(request, timeout=TIMEOUT))
        except Exception as error:  # raised again where it is waited for
            asked.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        response = asked.result(TIMEOUT)
    except TimeoutError:
        asked.add_done_callback(lambda late: None if late.exception() else late.result().close())
        raise _NetworkError(f"no answer within {TIMEOUT:g} seconds") from None
    except HTTPError as error:
        error.close()
        if error.code == 416 and there:  # the server's file ends before ours does: ours is of another version
            part.unlink()
        elif error.code < 500 and error.code not in (408, 429):
            raise FetchError(f"{url} answered {error.code} ({error.reason}); check the address.") from error
        raise _NetworkError(f"HTTP {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:  # no route, no such name, refused
        raise _NetworkError(str(getattr(error, "reason", "") or error) or type(error).__name__) from None
    # A server without ranges sends the whole again.
    goes_on = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {there}-")
    return response, there if goes_on else 0


def _blocks(response: HTTPResponse, size: int) -> Iterator[bytes]:
    """What comes, up to one byte more than `size`, which is enough to know that it is not the file."""
    began, since = time.monotonic(), 0
    while size >= 0:
        try:
            block = response.read1(min(BLOCK, size + 1))
        except (OSError, HTTPException) as error:
            raise _NetworkError(str(error) or type(error).__name__) from None
        if not block:
            raise _NetworkError("the connection closed early")
        yield block
        size, since = size - len(block), since + len(block)
        if (passed := time.monotonic() - began) > TIMEOUT:
            if since < SLOWEST * passed:
                raise _NetworkError(f"slower than {SLOWEST:g} bytes a second")
            began, since = time.monotonic(), 0
