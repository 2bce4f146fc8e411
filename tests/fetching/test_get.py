"""Fetching from a local server that breaks off, has no ranges, lies or is not there."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.apps.cli import main
from regard.errors import FetchError
from regard.fetching import get as get_module
from regard.fetching.get import CATALOGUE, Dataset, RemoteFile, get

FILES = {
    "train.en.gz": gzip.compress("\n".join(f"Two dogs and {i} cats." for i in range(30_000)).encode(), 6, mtime=0),
    "train.de.gz": gzip.compress("\n".join(f"Zwei Hunde und {i} Katzen." for i in range(3_000)).encode(), 6, mtime=0),
}


class Server(ThreadingHTTPServer):
    """Serves FILES; its switches are what can go wrong."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.ranges = True
        self.break_after = []  # for each coming answer, the bytes after which the connection drops
        self.answer = []  # for each coming answer, a status instead of the file
        self.seen = []  # (file, Range header)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/raw"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        wanted = self.headers.get("Range")
        self.server.seen.append((name, wanted))
        if self.server.answer:
            return self.send_error(self.server.answer.pop(0))
        if name not in self.server.files:
            return self.send_error(404)
        body, first = self.server.files[name], 0
        if wanted and self.server.ranges:
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        last = first + self.server.break_after.pop(0) if self.server.break_after else len(body)
        self.wfile.write(body[first:last])
        if last < len(body):
            self.close_connection = True
        return None


@pytest.fixture
def server(monkeypatch):
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "127.0.0.1")
    monkeypatch.setattr(get_module, "PAUSE", 0.0)
    served = Server()
    files = tuple(RemoteFile(name, len(body), hashlib.sha256(body).hexdigest()) for name, body in FILES.items())
    monkeypatch.setitem(CATALOGUE, "toy", Dataset("for tests", served.address, files))
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def whole(out):
    """Every file is there with the right bytes, and nothing else."""
    return {path.name: path.read_bytes() for path in out.iterdir()} == FILES


def test_fetches_and_reports_progress(server, tmp_path):
    calls = []
    paths = get("toy", tmp_path / "new" / "toy", progress=lambda *call: calls.append(call))
    assert [path.name for path in paths] == list(FILES)
    assert whole(tmp_path / "new" / "toy")
    for name, body in FILES.items():
        steps = [(there, size) for file, there, size in calls if file == name]
        assert steps == sorted(steps)
        assert steps[-1] == (len(body), len(body))


def test_base_is_a_mirror(server, tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "toy", Dataset("", "http://127.0.0.1:1/gone", CATALOGUE["toy"].files))
    get("toy", tmp_path, base=server.address + "/")
    assert whole(tmp_path)


def test_what_is_there_is_verified_and_not_fetched(server, tmp_path):
    get("toy", tmp_path)
    server.seen.clear()
    get("toy", tmp_path)
    get("toy", tmp_path, offline=True)
    assert server.seen == []
    (tmp_path / "train.de.gz").unlink()
    get("toy", tmp_path)
    assert server.seen == [("train.de.gz", None)]


def test_a_broken_connection_is_resumed_in_the_same_call(server, tmp_path):
    server.break_after = [1000, 2000]
    get("toy", tmp_path)
    assert whole(tmp_path)
    assert server.seen[:3] == [("train.en.gz", None), ("train.en.gz", "bytes=1000-"), ("train.en.gz", "bytes=3000-")]


def test_an_interrupted_fetch_is_resumed_by_the_next_call(server, tmp_path):
    server.break_after = [5000, 0, 0, 0]
    with pytest.raises(FetchError, match=r"stopped at 5,000 of [\d,]+ bytes .*run this again"):
        get("toy", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.en.gz.part"]  # no half file under the whole one's name
    server.seen.clear()
    get("toy", tmp_path)
    assert server.seen[0] == ("train.en.gz", "bytes=5000-")
    assert whole(tmp_path)


def test_ctrl_c_keeps_the_part(server, tmp_path):
    def stop(file, there, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("toy", tmp_path, progress=stop)
    assert (tmp_path / "train.en.gz.part").stat().st_size > 0
    get("toy", tmp_path)
    assert whole(tmp_path)
    assert server.seen[1][1].startswith("bytes=")


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    server.break_after = [5000]
    get("toy", tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("extra", [-100, 0, 100])
def test_a_part_of_another_file_is_replaced(server, tmp_path, extra):
    size = len(FILES["train.en.gz"]) + extra
    (tmp_path / "train.en.gz.part").write_bytes(b"x" * size)
    get("toy", tmp_path)
    assert whole(tmp_path)


def test_a_complete_part_only_needs_its_name(server, tmp_path):
    (tmp_path / "train.en.gz.part").write_bytes(FILES["train.en.gz"])
    get("toy", tmp_path)
    assert whole(tmp_path)
    assert server.seen == [("train.de.gz", None)]


@pytest.mark.parametrize("change", [lambda b: b[:-1] + b"?", lambda b: b + b"more", lambda b: b"<html>sign in</html>"])
def test_a_wrong_file_is_named_with_both_checksums_and_not_kept(server, tmp_path, change):
    wrong = change(FILES["train.de.gz"])
    server.files["train.de.gz"] = wrong
    with pytest.raises(FetchError) as caught:
        get("toy", tmp_path)
    assert "train.de.gz" in str(caught.value)
    assert not (tmp_path / "train.de.gz").exists()
    if len(wrong) == len(FILES["train.de.gz"]):
        assert hashlib.sha256(FILES["train.de.gz"]).hexdigest() in str(caught.value)
        assert hashlib.sha256(wrong).hexdigest() in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["train.en.gz"]
    server.files = dict(FILES)
    get("toy", tmp_path)
    assert whole(tmp_path)


def test_a_changed_local_file_is_left_to_the_user(server, tmp_path):
    get("toy", tmp_path)
    mine = b"edited by hand"
    (tmp_path / "train.de.gz").write_bytes(mine)
    for offline in (False, True):
        with pytest.raises(FetchError, match=hashlib.sha256(mine).hexdigest()):
            get("toy", tmp_path, offline=offline)
    assert (tmp_path / "train.de.gz").read_bytes() == mine


def test_offline_opens_no_connection_and_names_what_is_missing(server, tmp_path):
    (tmp_path / "train.en.gz").write_bytes(FILES["train.en.gz"])
    with pytest.raises(FetchError, match=r"offline, .* lacks train\.de\.gz of toy") as caught:
        get("toy", tmp_path, offline=True)
    assert "train.en.gz" not in str(caught.value)
    assert server.seen == []


def test_server_errors_are_tried_again_and_refusals_are_not(server, tmp_path):
    server.answer = [503, 429]
    get("toy", tmp_path)
    assert whole(tmp_path)
    server.files.clear()
    server.seen.clear()
    with pytest.raises(FetchError, match=r"train\.en\.gz answered 404"):
        get("toy", tmp_path / "again")
    assert len(server.seen) == 1


def test_no_network(server, tmp_path):
    with pytest.raises(FetchError, match=r"stopped at 0 of .*refused"):
        get("toy", tmp_path, base="http://127.0.0.1:1")


@pytest.mark.parametrize("base", ["file:///etc", "ftp://example.org", "/some/folder"])
def test_other_kinds_of_address_are_refused(server, tmp_path, base):
    with pytest.raises(FetchError, match="neither https"):
        get("toy", tmp_path, base=base)


@pytest.mark.parametrize("base", ["http://[", "http://", "https://:80/x", "http://example.org:port"])
def test_an_address_that_is_none_is_named(server, tmp_path, base):
    with pytest.raises(FetchError, match="the address"):
        get("toy", tmp_path, base=base)
    assert server.seen == []


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_a_redirection_out_of_the_web_is_refused(server, tmp_path, monkeypatch, target):
    def moved(self):
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    monkeypatch.setattr(Handler, "do_GET", moved)
    with pytest.raises(FetchError, match=r"(ftp|file):/.*(https://|not allowed)"):
        get("toy", tmp_path)


@pytest.mark.parametrize("headers", [True, False])
def test_a_server_that_drips_is_given_up(server, tmp_path, monkeypatch, headers):
    """It sends a byte before every timeout of a read, so that only the time in all can tell."""
    stop = threading.Event()

    def drip(self):
        if headers:
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
        with contextlib.suppress(OSError):
            while not stop.wait(0.02):
                self.wfile.write(b"x")
        self.close_connection = True

    monkeypatch.setattr(Handler, "do_GET", drip)
    monkeypatch.setattr(get_module, "TIMEOUT", 0.2)
    monkeypatch.setattr(get_module, "ATTEMPTS", 2)
    try:
        with pytest.raises(FetchError, match=r"slower than|no answer within"):
            get("toy", tmp_path)
    finally:
        stop.set()


def test_out_that_is_a_file(server, tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(FetchError, match="cannot use the folder"):
        get("toy", tmp_path / "taken")


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(FetchError, match=r"'multi3k'.*did you mean multi30k\?"):
        get("multi3k", "anywhere")


# -- files that are served plain and kept as gzip ----------------------------------------------------------------------

PLAIN = "\n".join(f"A line and {i} more." for i in range(5_000)).encode()


@pytest.fixture
def packed(server, monkeypatch):
    server.files["lines.txt"] = PLAIN
    file = RemoteFile("part/lines.txt.gz", len(PLAIN), hashlib.sha256(PLAIN).hexdigest(), "deep/lines.txt", packed=True)
    monkeypatch.setitem(CATALOGUE, "plain", Dataset("for tests", server.address, (file,)))
    return server


def test_a_plain_file_is_kept_as_gzip(packed, tmp_path):
    [path] = get("plain", tmp_path)
    assert path == tmp_path / "part" / "lines.txt.gz"
    assert gzip.decompress(path.read_bytes()) == PLAIN
    assert [each.name for each in path.parent.iterdir()] == ["lines.txt.gz"]
    path.write_bytes(gzip.compress(PLAIN, 1))  # by another compressor
    packed.seen.clear()
    get("plain", tmp_path, offline=True)
    assert packed.seen == []


def test_a_plain_file_is_resumed(packed, tmp_path):
    packed.break_after = [700]
    get("plain", tmp_path)
    assert packed.seen == [("lines.txt", None), ("lines.txt", "bytes=700-")]
    assert gzip.decompress((tmp_path / "part" / "lines.txt.gz").read_bytes()) == PLAIN


@pytest.mark.parametrize(
    "wrong",
    [gzip.compress(PLAIN[:-1] + b"?"), gzip.compress(PLAIN + b"x"), gzip.compress(PLAIN)[:-20], b"no gzip", b""],
    ids=["changed", "longer", "cut", "plain", "empty"],
)
def test_what_a_gzip_file_holds_is_verified(packed, tmp_path, wrong):
    path = tmp_path / "part" / "lines.txt.gz"
    path.parent.mkdir()
    path.write_bytes(wrong)
    with pytest.raises(FetchError, match="is not the published file"):
        get("plain", tmp_path)
    assert path.read_bytes() == wrong


def test_no_more_is_unpacked_than_the_file_may_hold(packed, tmp_path, monkeypatch):
    path = tmp_path / "part" / "lines.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(bytes(300 << 20), 1))
    taken = []
    monkeypatch.setattr(get_module.hashlib, "sha256", lambda: Taken(taken))
    with pytest.raises(FetchError, match="is not the published file"):
        get("plain", tmp_path)
    assert sum(taken) == len(PLAIN) + 1


class Taken:
    """A digest that counts."""

    def __init__(self, taken):
        self.taken = taken

    def update(self, block):
        self.taken.append(len(block))

    def hexdigest(self):
        return "counted"


# -- the catalogue -----------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
NAMED = sorted(
    {
        tuple(match)
        for recipe in (ROOT / "recipes").rglob("*.toml")
        for match in re.findall(r"\$\{REGARD_DATA\}/(\w[\w-]*)/([\w./-]+)", recipe.read_text("utf-8"))
    }
)


@pytest.mark.parametrize(("name", "file"), NAMED, ids=lambda part: part)
def test_every_file_that_a_recipe_names_is_known(name, file):
    assert file in {each.name for each in CATALOGUE[name].files}


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_entry_says_all_that_there_is_to_say(name):
    data = CATALOGUE[name]
    assert data.about
    assert data.licence
    assert bool(data.address) != bool(data.made)  # it is served, or was made
    assert not data.address or data.address.startswith("https://")
    assert not data.made or "https://" in data.made
    for file in data.files:
        assert not Path(file.name).is_absolute()
        assert ".." not in Path(file.name).parts
        if name.startswith("wmt14"):
            continue  # which was never here
        assert len(file.sha256) == 64
        assert int(file.sha256, 16)
        assert file.size > 1000


def test_a_set_that_nobody_serves_says_what_it_was_made_from(tmp_path):
    with pytest.raises(FetchError, match=r"lacks test\.de\.gz, .*tatoeba_en-de is not served in this form: it"):
        get("tatoeba_en-de", tmp_path)


def test_the_list_names_every_set_with_its_licence(capsys):
    assert main(["get"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(CATALOGUE)
    assert all(len(row) == 4 for row in rows)
    assert {row[2] for row in rows} == {"fetched", "verified"}


AS_PUBLISHED = {
    "lm_ptb": lambda held: b"".join(b" " + line + b" \n" for line in held.split(b"\n")[:-1]),
    "scitldr": lambda held: held.removesuffix(b"\n"),
}
"""Sets of the data folder whose spaces at the ends of lines, or of the file, are not those of the published files."""


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_data_folder_is_what_the_catalogue_says(name, tmp_path):
    folder = Path(os.environ.get("REGARD_DATA", "")) / name
    if "REGARD_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"REGARD_DATA has no {name}")
    if name not in AS_PUBLISHED:
        get(name, folder, offline=True)
        return
    for file in CATALOGUE[name].files:
        whole = AS_PUBLISHED[name](gzip.decompress((folder / file.name).read_bytes()))
        assert (len(whole), hashlib.sha256(whole).hexdigest()) == (file.size, file.sha256)
