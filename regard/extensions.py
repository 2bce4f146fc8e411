"""Extensions: what adds entries to this package's tables from outside of it, open to every room as errors are.

A score, a family, a search or another part is an entry in a dict. A script adds it when it is imported, and so does an
installed package that names a module of its own (or a function, which is called) in the entry point group `regard`:

    [project.entry-points.regard]
    mine = "my_package.parts"

Installed extensions are loaded when a name is met that Regard does not have, and not before.
"""

from __future__ import annotations

import difflib
import sys
import threading
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypeVar

from regard.errors import ExtensionError, RegardError

GROUP = "regard"
HINT = "a name that an extension adds is known once it is imported: `regard --import FILE …`, or install its package"

OWN = {
    "regard.studies.exact": "regard.search.table",
    "regard.reading.family": "regard.models",
    "regard.parsing.family": "regard.models",
    "regard.linking.guided": "regard.train.regularizers",
}
"""Modules of this package that stand above the tables they add to, which are in these; loaded where the table is."""
Entry = TypeVar("Entry")
_lock = threading.RLock()
_looked = False


def load_installed() -> bool:
    """Load our own and all installed extensions, once; whether any was now. Raises ExtensionError if one fails."""
    global _looked
    with _lock:
        new = [import_module(name) for name, table in OWN.items() if table in sys.modules and name not in sys.modules]
        if _looked:
            return bool(new)
        _looked = True
        for point in entry_points(group=GROUP):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
            try:
                if callable(extension := point.load()):
                    extension()
            except Exception as error:  # somebody else's program may raise anything
                raise ExtensionError(
                    f"the extension {point.name!r} of {package} ({point.value}) cannot be loaded: {_told(error)}; "
                    f"correct it, or uninstall {package}."
                ) from error
        return True


def run_script(path: str | Path) -> None:
    """Import a script, which adds its entries to the tables, under the name of its file. ExtensionError if it fails."""
    path = Path(path)
    if not path.is_file():
        raise ExtensionError(f"--import {path}: there is no such file.")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ExtensionError(f"--import {path}: is no Python file; its name must end in .py.")
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) != spec.origin:
        raise ExtensionError(f"--import {path}: a module of the name {path.stem!r} is there already; rename the file.")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # somebody else's program may raise anything
        del sys.modules[path.stem]
        raise ExtensionError(f"--import {path}: {_told(error)}") from error


def entry(table: Mapping[str, Entry], name: str, what: str, error: type[RegardError]) -> Entry:
    """What a table has under a name, perhaps by an installed extension; else `error`, which names the nearest."""
    if name not in table and not (load_installed() and name in table):
        near = difflib.get_close_matches(name[:100], list(table), 1)
        meant = f"did you mean {near[0]}?" if near else f"{HINT}."
        raise error(f"{what} = {name!r}: must be one of {', '.join(table)}; {meant}")
    return table[name]


def _told(error: Exception) -> str:
    """What went wrong, and in which line of which file."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}, line {last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}"
