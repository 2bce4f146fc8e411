"""`regard serve`: bundles behind HTTP, for programs that speak LibreTranslate's or DeepL's API, or ours."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from regard.apps.cli import takes
from regard.apps.options import Device, Flags
from regard.errors import ModelError, install

_NEEDED = ("fastapi", "lingua", "limits", "multipart", "prometheus_client", "rapidfuzz", "uvicorn")
if _missing := [name for name in _NEEDED if not find_spec(name)]:
    raise ModelError(f"serve needs {', '.join(_missing)}, not installed: {install('serve')}.")

from regard.server.limits import Limits, new_key  # noqa: E402  (behind what says that it cannot be had)


class Listening(Flags):
    """Where the server listens, and to whom."""

    host: str = Field("127.0.0.1", description="address to listen on: this machine's own; 0.0.0.0 is all of them")
    port: int = Field(5000, ge=0, le=65535, description="port to listen on")
    cors: tuple[str, ...] = Field(
        (), description="pages of this origin may ask from a browser, * is any; may be repeated"
    )


class ServerLimits(Limits, Flags):
    """The limits as flags."""


class Taught(Flags):
    """What the bundles were taught, what users teach, and what they are reminded of."""

    adapter: tuple[str, ...] = Field(
        (),
        description="translate with what `regard adapt` learnt (or en-de=FILE, of several bundles); may be repeated",
        json_schema_extra={"metavar": "FILE"},
    )
    corrections: Path | None = Field(
        None,
        description="let users correct translations; what is learnt is kept in this directory",
        json_schema_extra={"metavar": "DIRECTORY"},
    )
    memory: tuple[str, ...] = Field(
        (),
        description="pairs (.tmx, .tsv, or en-de=FILE) shown where a text is like one; may be repeated",
        json_schema_extra={"metavar": "FILE"},
    )


@takes(listening=Listening, taught=Taught, limits=ServerLimits)
def serve(
    listening: Listening,
    taught: Taught,
    limits: ServerLimits,
    bundles: Annotated[
        list[str] | None,
        typer.Argument(metavar="BUNDLE…", help="Bundles' directories; en-de=BUNDLE says what one translates."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only who has one of these keys may ask; see --new-key.")
    ] = None,
    new: Annotated[
        str | None, typer.Option("--new-key", metavar="NAME", help="Add a key to the file of --keys and print it.")
    ] = None,
    pivot: Annotated[
        str, typer.Option(metavar="CODE", help="Language to go through where no bundle translates a pair itself.")
    ] = "",
    device: Device = "auto",
) -> None:
    """Serve translations over HTTP."""
    if new is not None:
        if keys is None:
            raise ModelError("--new-key adds to a file of keys; name it with --keys FILE.")
        sys.stdout.write(f"{new_key(new, keys)}\n")
        return
    if not bundles:
        raise ModelError("name at least one bundle to serve: regard serve runs/my-translator/bundle.")
    from regard.server.address import check_address
    from regard.server.app import make_app, run
    from regard.server.limits import Clients
    from regard.server.service import Service

    check_address(listening.host, listening.port)
    clients = Clients(limits, keys)
    service = Service(
        bundles,
        limits,
        pivot=pivot,
        device=device,
        corrections=taught.corrections,
        memory=taught.memory,
        adapters=taught.adapter,
    )
    pairs = ", ".join(sorted("-".join(pair) for pair in service.pairs))
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    sys.stderr.write(f"Serving {pairs} at http://{host}:{listening.port} (process {os.getpid()}); Ctrl-C stops.\n")
    run(make_app(service, clients, cors=listening.cors), listening.host, listening.port)
