"""Documents by upload: LibreTranslate's /translate_file, DeepL's /v2/document, and /v1/documents of our own.

A document is worked on while its sender asks how far it is; the result waits an hour to be fetched, and is forgotten
when it has been. What waits lies in a private folder on disk, so that it costs no memory. Where all places are taken,
results that nobody fetched make room: the sender's own first, then others' that have waited for some minutes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Response
from fastapi import Request as Raw

from regard.documents.formats import FORMATS, translate_document
from regard.errors import RegardError
from regard.search.table import Options
from regard.tasks.translation import Translation

from .asked import Asked, asked
from .described import body, gives
from .limits import Client, Clients, Refused
from .service import Service

PATHS = ("/translate_file", "/v2/document", "/v1/documents")
"""Where documents come in."""
_KEPT, _GRACE, _SECONDS, _TOGETHER = 3600.0, 120.0, 3600.0, 256
"""Seconds that a result waits; that it waits even where others want its place; that a document may take; lines of it
that are queued at a time."""
_GONE = "Document not found: a result waits an hour to be fetched, once, and less where newer ones need its place"
router = APIRouter(tags=["Documents"])
Request = Annotated[Asked, Depends(asked)]
_FILE = body("file target", file="file", source="string", target="string", api_key="string")
_SENT = {"file": "file", "source_lang": "string", "target_lang": "string", "filename": "string"}
_BYTES = "application/octet-stream"
_KEY = body("document_key", document_key="string")


Pair = tuple[str | None, str]
"""The language of a document, or None where it is to be found out, and the one that it is translated into."""


@dataclass
class Work:
    """A document and what has become of it."""

    name: str
    owner: str
    identity: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    begun: float = field(default_factory=time.monotonic)
    lines: int = 0
    done: int = 0
    characters: int = 0
    size: int = 0
    """Bytes on disk, of the document or of its translation."""
    finished: float = 0.0
    """When it was, by the monotonic clock; 0 while it is worked on."""
    wrong: str = ""

    def status(self) -> dict[str, object]:
        """As DeepL's clients read it, and how many of its lines are done."""
        state = "error" if self.wrong else "queued" if not self.lines else "translating"
        about: dict[str, object] = {"document_id": self.identity, "lines": self.lines, "lines_done": self.done}
        if self.wrong:
            return {**about, "status": state, "error_message": self.wrong, "message": self.wrong}
        if self.finished:
            return {**about, "status": "done", "billed_characters": self.characters}
        return {**about, "status": state, "seconds_remaining": self._left()}

    def _left(self) -> int:
        spent = time.monotonic() - self.begun
        return round(spent * (self.lines - self.done) / self.done) if self.done else 1


class Documents:
    """The documents of a running server, by their ids."""

    def __init__(self, service: Service) -> None:
        self._service, self._lock = service, threading.Lock()
        self._all: dict[str, Work] = {}
        self._folder: Path | None = None
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="regard-document")

    def begin(self, data: bytes, name: str, pair: Pair, client: Client, clients: Clients) -> Work:
        """Takes a document and returns at once. Raises Refused for an unknown format, and where there are too many."""
        suffix = PurePosixPath(name).suffix.lower()
        if suffix not in FORMATS:
            raise Refused(400, f"documents ending in {suffix!r} are not known; these are: {', '.join(FORMATS)}")
        work = Work(f"{PurePosixPath(name).stem}.{pair[1]}{suffix}", client.name, size=len(data))
        self.forget()
        with self._lock:
            if not self._makes_room(work.owner, len(data), places=1):
                raise Refused(429, "Too many documents are worked on or wait to be fetched; try again later")
            self._all[work.identity] = work
        try:
            self._write(work, data)
        except OSError as error:
            with self._lock:
                self._drop(work)
            raise Refused(503, f"The server cannot keep the document ({error.strerror})") from None
        self._threads.submit(self._work, work, suffix, pair, partial(clients.count, client))
        return work

    def forget(self) -> None:
        """Drops the results that nobody has fetched in time."""
        limit = time.monotonic() - _KEPT
        with self._lock:
            for one in [one for one in self._all.values() if one.finished and one.finished < limit]:
                self._drop(one)

    def get(self, identity: str, owner: str | None, key: str | None = None) -> Work:
        """By whose it is, by its key, or by both. Raises Refused (404) for one that is not there, or another's."""
        with self._lock:
            found = self._all.get(identity)
        mine = found is not None and owner in (None, found.owner)
        if found is None or not mine or (key is not None and not _same(key, found.key)):
            raise Refused(404, _GONE)
        return found

    def take(self, identity: str, owner: str | None, key: str | None = None) -> tuple[Work, bytes]:
        """A document that is done, with its translation, and is then forgotten.

        Raises Refused: 404, 400 if it failed, 503 for not yet, as DeepL's clients expect it.
        """
        found = self.get(identity, owner, key)
        if found.wrong:
            raise Refused(400, found.wrong)
        if not found.finished:
            raise Refused(503, "The document is not done yet")
        with self._lock:
            if self._all.pop(identity, None) is None:
                raise Refused(404, _GONE)
        file = self._file(found)
        data = file.read_bytes()
        file.unlink()
        return found, data

    def close(self) -> None:
        """Finishes what was taken, and removes what lies on disk."""
        self._threads.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _makes_room(self, owner: str, size: int, places: int) -> bool:
        """Whether there is room, for which results that waited longest are dropped. Needs the lock."""
        limits, now = self._service.limits, time.monotonic()

        def full() -> bool:
            stored = sum(one.size for one in self._all.values())
            return len(self._all) + places > limits.max_documents or stored + size > limits.max_stored

        finished = [one for one in self._all.values() if one.finished]
        for one in sorted(finished, key=lambda one: (one.owner != owner, one.finished)):
            if not full():
                break
            if one.owner == owner or now - one.finished > _GRACE:
                self._drop(one)
        return not full()

    def _drop(self, work: Work) -> None:
        """Forgets a document. Needs the lock."""
        if self._all.pop(work.identity, None) is not None and self._folder is not None:
            self._file(work).unlink(missing_ok=True)

    def _file(self, work: Work) -> Path:
        assert self._folder is not None
        return self._folder / work.identity

    def _write(self, work: Work, data: bytes) -> None:
        """Puts a document, or its translation, where only this user can read it."""
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="regard-documents-"))
        with open(self._file(work), "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(data)

    def _work(self, work: Work, suffix: str, pair: Pair, count: Callable[[int], None]) -> None:
        try:
            made = self._translated(work, suffix, pair, count)
            with self._lock:
                if not self._makes_room(work.owner, len(made) - work.size, places=0):
                    raise RegardError("the translation has no room beside those that wait to be fetched; try later")
                work.size = len(made)
            self._write(work, made)
        except Exception as error:
            said = str(error) if isinstance(error, RegardError) else type(error).__name__
            work.wrong = said if isinstance(error, RegardError) else f"the document cannot be translated ({said})"
            work.size = 0
            self._file(work).unlink(missing_ok=True)
        work.finished = time.monotonic()

    def _translated(self, work: Work, suffix: str, pair: Pair, count: Callable[[int], None]) -> bytes:
        until = time.monotonic() + _SECONDS
        options = Options(alignment=suffix not in (".txt", ".po"))

        def translate(lines: list[str]) -> list[Translation]:
            characters = sum(map(len, lines))
            count(characters)
            work.lines, work.characters = work.lines + len(lines), work.characters + characters
            source = pair[0] or self._service.source_of(lines[:100], pair[1])[0]
            found: list[Translation] = []
            for start in range(0, len(lines), _TOGETHER):
                some = self._service.translate(lines[start : start + _TOGETHER], source, pair[1], options, until=until)
                found += [each[0] for each in some]
                work.done += len(some)
            return found

        return translate_document(self._file(work).read_bytes(), suffix, translate, pair[1])


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _documents(request: Asked) -> Documents:
    found: Documents = request.state.documents
    return found


def _pair(request: Asked, source: str | None, target: str | None) -> Pair:
    service = request.service
    into = service.code(target or "", service.into)
    if into is None:
        raise Refused(400, f"{target or 'target'} is not supported")
    if not source or source.lower() == "auto":
        return None, into
    from_ = service.code(source, service.sources)
    if from_ is None:
        raise Refused(400, f"{source} is not supported")
    if into not in service.targets(from_):
        raise Refused(400, f"no bundle translates {from_} into {into}")
    return from_, into


def _begun(request: Asked, source: str, target: str) -> Work:
    """The document that a request brings, begun; the request's own copy of it is let go."""
    client = request.client()
    if "file" not in request.files:
        raise Refused(400, "Invalid request: missing file parameter")
    name = request.text("filename") or request.files["file"][0]
    pair = _pair(request, request.text(source), request.text(target))
    return _documents(request).begin(request.files.pop("file")[1], name, pair, client, request.clients)


def _answer(work: Work, data: bytes) -> Response:
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(work.name)}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


# -- LibreTranslate ----------------------------------------------------------------------------------------------------


@router.post("/translate_file", openapi_extra=_FILE)
def translate_file(request: Request, raw: Raw) -> dict[str, str]:
    """Translate a document and give the address where its translation can be fetched, once."""
    work = _begun(request, "source", "target")
    while not work.finished:
        if time.monotonic() > request.until:
            raise Refused(504, "The document takes too long; send it to /v1/documents, which answers at once")
        time.sleep(0.02)
    if work.wrong:
        raise Refused(400, work.wrong)
    return {"translatedFileUrl": f"{raw.base_url}download_file/{work.identity}?key={work.key}"}


@router.get("/download_file/{identity}", **gives(_BYTES))
def download_file(identity: str, key: str, request: Request) -> Response:
    """A translated document, once."""
    return _answer(*_documents(request).take(identity, None, key))


# -- DeepL -------------------------------------------------------------------------------------------------------------


@router.post("/v2/document", openapi_extra=body("file target_lang", **_SENT))
def upload(request: Request) -> dict[str, str]:
    """Send a document."""
    work = _begun(request, "source_lang", "target_lang")
    return {"document_id": work.identity, "document_key": work.key}


@router.post("/v2/document/{identity}", openapi_extra=_KEY)
def status(identity: str, request: Request) -> dict[str, object]:
    """How far a document is."""
    return _documents(request).get(identity, request.client().name, request.text("document_key") or "").status()


@router.post("/v2/document/{identity}/result", openapi_extra=_KEY, **gives(_BYTES))
def result(identity: str, request: Request) -> Response:
    """The translated document, once."""
    documents = _documents(request)
    return _answer(*documents.take(identity, request.client().name, request.text("document_key") or ""))


# -- our own -----------------------------------------------------------------------------------------------------------


@router.post("/v1/documents", status_code=202, openapi_extra=_FILE)
def send(request: Request) -> dict[str, object]:
    """Send a document: `file`, `source`, `target`, as a form."""
    return _begun(request, "source", "target").status()


@router.get("/v1/documents/{identity}")
def progress(identity: str, request: Request) -> dict[str, object]:
    """How many lines of a document are done."""
    return _documents(request).get(identity, request.client().name).status()


@router.get("/v1/documents/{identity}/result", **gives(_BYTES))
def fetch(identity: str, request: Request) -> Response:
    """The translated document, once."""
    return _answer(*_documents(request).take(identity, request.client().name))
