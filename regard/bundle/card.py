"""A model card: what a bundle is, in words, for whoever is handed it (Mitchell et al. 2019).

It says what the bundle's own files say and nothing else: the recipe, the provenance, the scores with their signatures.
Its head is what model hubs read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.models import FAMILIES
from regard.recipe import Recipe
from regard.text.languages import name as language_named

from .format import Golden, Provenance

_SHOWN = 3  # golden sentences


def model_card(recipe: Recipe, parameters: int, provenance: Provenance, golden: Sequence[Golden]) -> str:
    """The card as Markdown."""
    data = recipe.data
    codes = [*dict.fromkeys(code for code in (*data.languages, *data.target_languages) if code)]
    # JSON is YAML too, in which a bare "no" is false and not Norwegian.
    head = ["---", "library_name: regard", f"tags: {json.dumps([recipe.model.family, recipe.objective])}"]
    head += [f"language: {json.dumps(codes)}"] if codes else []
    parts = [
        "\n".join([*head, "---"]),
        f"# {_plain(recipe.name or recipe.model.family)}",
        _what(recipe, parameters, [language_named(code) for code in codes]),
        *_data(provenance),
        *_training(provenance),
        *_scores(provenance),
        *_notes(provenance),
        _limits(recipe, provenance),
        "## Examples\n\n" + _table(("input", "output"), [(g.source, g.output) for g in golden[:_SHOWN]]),
        f"## Licence\n\nOf the data: {_plain(data.licence) or 'not stated by the recipe; ask whoever trained this'}.",
    ]
    return "\n\n".join(parts) + "\n"


def _what(recipe: Recipe, parameters: int, languages: Sequence[str]) -> str:
    kind = FAMILIES[recipe.model.family].kind
    link = " to " if len(languages) == 2 else ", "
    between = f" ({link.join(languages)})" if languages else ""
    aim = recipe.objective.replace("-", " ")
    return (
        f"A model of the family `{recipe.model.family}` ({kind}) with {parameters:,} parameters, trained to "
        f"{aim}{between} with Regard. The whole recipe is in `recipe.toml`; `regard inspect . --verify` checks that "
        "the files are whole and answer as they did when they were made."
    )


def _data(provenance: Provenance) -> Iterable[str]:
    sums, filters = provenance.data.get("sha256", {}), provenance.data.get("filters", {})
    if not sums:
        return
    rows = [(Path(name).name, f"`{digest[:16]}…`") for name, digest in sums.items()]
    text = "## Data\n\n" + _table(("file", "SHA-256"), rows)
    if filters:
        dropped = "".join(f"; {count:,} left out: {reason}" for reason, count in filters.get("dropped", {}).items())
        text += f"\n\nRead: {filters.get('read', 0):,}; kept: {filters.get('kept', 0):,}{dropped}."
    yield text


def _training(provenance: Provenance) -> Iterable[str]:
    training = provenance.training
    if not training:
        return
    known = {
        "updates": "updates", "epochs": "whole epochs", "target_tokens": "target tokens", "trained": "seconds",
        "precision": "precision", "device": "device", "threads": "threads", "processes": "processes",
    }  # fmt: skip
    said = [(name, training[key]) for key, name in known.items() if key in training]
    rows = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in said]
    rows += [("machine", provenance.machine), ("ended", provenance.created)]
    rows.append(("versions", ", ".join(f"{name} {number}" for name, number in provenance.versions.items())))
    yield "## Training\n\n" + _table(("", ""), rows)


def _scores(provenance: Provenance) -> Iterable[str]:
    rows = []
    for each in provenance.scores:
        for score in each.get("scores", {}).values():
            low, high = score.get("interval") or (None, None)
            value = f"{score['value']:.2f}" + ("" if low is None else f" ({low:.2f} to {high:.2f})")
            rows.append((each.get("set", ""), f"{score['name']}, {score['unit']}", value, f"`{score['signature']}`"))
    if rows:
        table = _table(("set", "metric", "value", "signature"), rows)
        yield f"## Scores\n\n{table}\n\nIntervals are of 95 %, by bootstrap."


def _notes(provenance: Provenance) -> Iterable[str]:
    if notes := provenance.notes:
        yield "## What happened since\n\n" + _table(("", ""), [(key, str(value)) for key, value in notes.items()])


def _limits(recipe: Recipe, provenance: Provenance) -> str:
    said = []
    if provenance.training and not recipe.data.context:  # else the filters were not those of its training
        most = recipe.data.filters.max_length
        said = [f"It was trained on lines of at most {most:,} tokens of a side, and has seen no longer ones."]
    said += [
        "It knows the kind of text named above, and nothing says how it does on other kinds; score it on yours.",
        "It may leave out, add and mistake, numbers and names too, without any sign of it in the text.",
        "What it writes may have whatever its data had: wrong facts, prejudice, personal data.",
    ]
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in said)


def _plain(text: str) -> str:
    """Text of others on one line, in which nothing ends the cell of a table or begins a tag."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *(map(_plain, row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
