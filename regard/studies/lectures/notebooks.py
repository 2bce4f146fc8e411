"""A lecture as a notebook: what it shows, the library's code that computes it, its numbers and its figures."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from regard.errors import DataError
from regard.machine import write_atomically

from .every import LECTURES, about, words

_TEXTS = {
    "en": {
        "code": "The function that computes it, of the library's own parts. Change it and run it again.",
        "numbers": "Its numbers.",
        "figure": "Its figure (with the extra `pictures`).",
        "moves": "The same as a figure that moves; nothing is asked of a network.",
    },
    "zh": {
        "code": "计算它的函数，用的是库里自己的部件。可以改动后再运行。",
        "numbers": "它的数。",
        "figure": "它的图（需要 extra `pictures`）。",
        "moves": "同样内容的可动的图，不访问网络。",
    },
}


def _cell(kind: str, number: int, source: str) -> dict[str, object]:
    found: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    found["source"] = source.splitlines(keepends=True)
    return found | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(name: str, language: str = "en") -> str:
    """The notebook of a lecture in English or Chinese (zh). Raises DataError for a name that there is not.

    The lecture's own source stands in it, as it is in the installed library, below the names that its module has.
    """
    if name not in LECTURES:
        raise DataError(f"there is no notebook of {name!r}; there are those of {', '.join(LECTURES)}.")
    function, texts = LECTURES[name], _TEXTS[language]
    module = function.__module__
    source = (
        f"import torch\n\nimport {module} as module\n\nglobals().update(vars(module))  # the names that it uses\n\n\n"
        f"{inspect.getsource(function)}"
    )
    numbers = (
        "from regard.studies.lectures.labels import label, said\n\n"
        f"torch.manual_seed(0)\none = {function.__name__}()\n"
        "for name, value in one.numbers.items():\n"
        f"    shown = said(value, {language!r}) if isinstance(value, str) else value\n"
        f"    print(label(name, {language!r}), shown, sep=': ')"
    )
    figure = "from regard.pictures import panels\n\npanels(one.panels)"
    cells = [
        ("markdown", f"# {name}\n\n{about(name, language)}"),
        ("markdown", texts["code"]),
        ("code", source.rstrip()),
        ("markdown", texts["numbers"]),
        ("code", numbers),
        ("markdown", texts["figure"]),
        ("code", figure),
    ]
    if name in words()["widget"]:
        moving = f"from regard.studies.lectures.interactive import page\n\npage({name!r}, one, {language!r})"
        cells += [("markdown", texts["moves"]), ("code", moving)]
    made = {
        "cells": [_cell(kind, number, text) for number, (kind, text) in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def write_notebook(name: str, path: Path, language: str = "en") -> None:
    """Write the notebook of a lecture to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, notebook(name, language))
