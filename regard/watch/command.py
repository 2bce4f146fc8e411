"""`regard watch`: training made visible, as a page that follows runs or as a report of them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import takes, write
from regard.apps.options import Flags
from regard.errors import ModelError, install

_NEEDED = ("fastapi", "uvicorn")


class Watching(Flags):
    """What is watched, how, and where it is shown."""

    out: Path | None = Field(
        None,
        description="write a report, one file of HTML, in place of serving a page",
        json_schema_extra={"metavar": "DIR|FILE.html"},
    )
    sentences: Path | None = Field(
        None,
        description="file of sentences that every checkpoint translates, a reference after a tab; a few of the dev set "
        "by default",
        json_schema_extra={"metavar": "FILE"},
    )
    translate: bool = Field(True, description="translate the sentences by each checkpoint")
    cache: Path | None = Field(
        None,
        description="where translations are kept; `watch` in each run by default",
        json_schema_extra={"metavar": "DIR"},
    )
    host: str = Field("127.0.0.1", description="address to listen on: this machine's own; 0.0.0.0 is all of them")
    port: int = Field(6060, ge=0, le=65535, description="port to listen on")


@takes(watching=Watching)
def watch(
    watching: Watching,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of runs, begun or not.")],
) -> None:
    """Follow training in the browser: curves, and what each checkpoint makes of a few sentences."""
    from .sentences import from_file

    sentences = from_file(watching.sentences) if watching.sentences is not None else ()
    if watching.out is not None:
        from .report import report

        file = report(runs, watching.out, sentences=sentences, translates=watching.translate, cache=watching.cache)
        write(f"written: {file}\n")
        return
    if missing := [name for name in _NEEDED if not find_spec(name)]:
        raise ModelError(
            f"watch needs {', '.join(missing)}, not installed: {install('serve')}; or give --out FILE.html."
        )
    from regard.server.address import check_address

    from .app import make_app, run
    from .following import Follower
    from .runs import named

    check_address(watching.host, watching.port)
    for path in runs:
        if not path.is_dir():
            sys.stderr.write(f"{path}: no run has begun there yet; it is shown when it begins.\n")
    follower = Follower(named(runs, watching.cache), translates=watching.translate, sentences=sentences)
    host = f"[{watching.host}]" if ":" in watching.host else watching.host
    sys.stderr.write(f"Watching {len(runs)} run(s) at http://{host}:{watching.port}; Ctrl-C stops.\n")
    run(make_app(follower, host=watching.host), watching.host, watching.port)
