"""Fetch a data set from its official address: verified by checksum, resumed where it stopped, atomic."""

from __future__ import annotations

import threading
import time
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
    """A file of a data set, as its publisher serves it."""

    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """Where a data set lives and what each of its files must be."""

    about: str
    address: str  # a file's address is this, a slash and its name
    files: tuple[RemoteFile, ...]


CATALOGUE: dict[str, Dataset] = {
    "multi30k": Dataset(
        about="Image captions in English, German and French: 29,000 + 1,014 + 1,000 lines (Elliott et al. 2016, 2017)",
        address="https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw",
        files=tuple(
            RemoteFile(f"{name}.gz", size, sha256)
            for name, size, sha256 in (
                ("train.en", 568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
                ("train.de", 637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
                ("train.fr", 604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
                ("val.en", 21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
                ("val.de", 24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
                ("val.fr", 23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
                ("test_2016_flickr.en", 21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
                ("test_2016_flickr.de", 22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
                ("test_2016_flickr.fr", 22310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
            )
        ),
    )
}


def get(
    name: str, out: str | Path, *, base: str | None = None, offline: bool = False, progress: Progress | None = None
) -> list[Path]:
    """The files of data set `name` in directory `out`, fetched where they are missing, in the catalogue's order.

    `base` replaces the official address (a mirror of the same files); `offline` opens no connection. Files already
    there are verified, never written. Raises FetchError for an unknown name, a wrong checksum, a file missing offline
    and a fetch that failed; what arrived of it is kept as `<file>.part` and the next call goes on from there.
    """
    data, folder = entry(CATALOGUE, name, "data set", FetchError), Path(out)
    address = (base or data.address).rstrip("/")
    _check(address)
    try:
        missing = [file for file in data.files if not _verified(folder / file.name, file)]
        if missing and offline:
            names = ", ".join(file.name for file in missing)
            raise FetchError(
                f"offline, and {folder} lacks {names} of {name}; put these files there (from {address}/), or go online."
            )
        folder.mkdir(parents=True, exist_ok=True)
        for file in missing:
            _fetch(f"{address}/{file.name}", folder, file, progress)
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
    if path.exists() and (found := digest(path)) != file.sha256:
        raise FetchError(
            f"{path} is not the published file: expected sha256 {file.sha256}, got {found}; "
            "move it away and run this again to fetch it anew."
        )
    return path.exists()


def _fetch(url: str, folder: Path, file: RemoteFile, progress: Progress | None) -> None:
    part = folder / f"{file.name}.part"
    for _ in range(2 if _size(part) else 1):  # what is there may be of another version: begin anew
        _complete(url, part, file, progress)
        if (found := digest(part)) == file.sha256:
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
