"""Runs as one file of HTML that needs nothing else: what the page shows, at this moment or after the end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from regard.errors import DataError
from regard.machine import write_atomically

from .following import Follower
from .runs import named
from .sentences import Sentence

PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("words.js", "numbers.js", "curves.js", "weights.js", "page.js")
_POINTS = 2000  # of each curve: more than a screen has
_OWN_ONLY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


def report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    sentences: Sequence[Sentence] = (),
    translates: bool = True,
    cache: str | Path | None = None,
) -> Path:
    """Write a page of these runs to a file, or to `report.html` in a directory; returns the file.

    With `translates`, checkpoints that are on disk and were not yet translated are, which takes PyTorch; those that
    were removed are in the report if they were translated before, by `regard watch` or an earlier report. Raises
    DataError for what is no run.
    """
    file = place_of(Path(out))
    found = named([Path(each) for each in runs], None if cache is None else Path(cache))
    for run in found:
        if not run.exists:
            raise DataError(f"{run.path}: there is no run here; name the directory that `regard train --out` had.")
    follower = Follower(found, translates=translates, sentences=tuple(sentences), nice=5)
    file.parent.mkdir(parents=True, exist_ok=True)
    follower.finish()
    write_atomically(file, html([follower.whole(number, _POINTS) for number in range(len(found))]))
    follower.close()
    return file


def html(runs: Sequence[dict[str, object]]) -> str:
    """The page with its data, style and scripts inside."""
    page = (PAGE / "index.html").read_text("utf-8")
    style = (PAGE / "page.css").read_text("utf-8")
    # Modules of their own need a server: inside of the page they are one.
    scripts = (_IMPORT.sub("", (PAGE / name).read_text("utf-8")) for name in _SCRIPTS)
    script = re.sub(r"^export ", "", "\n".join(scripts), flags=re.MULTILINE)
    # No text may end the script that it stands in.
    data = json.dumps(list(runs), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        '<link rel="stylesheet" href="page/page.css">': f"<style>\n{style}</style>",
        '<script type="module" src="page/page.js"></script>': f'<script type="application/json" id="report">{data}'
        f'</script>\n<script type="module">\n{script}</script>',
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        f'content="{_OWN_ONLY}">',
    }
    for before, after in parts.items():
        if page.count(before) != 1:
            raise AssertionError(f"index.html must have one {before}")
        page = page.replace(before, after)
    return page


def place_of(out: Path) -> Path:
    """Where a report goes: a file of HTML, or `report.html` in a directory. Raises DataError for other files."""
    if out.suffix == ".html" and not out.is_dir():
        return out
    if (out.exists() and not out.is_dir()) or (out.suffix and not out.is_dir()):
        raise DataError(f"--out {out}: name a file that ends with .html, or a directory.")
    return out / "report.html"
