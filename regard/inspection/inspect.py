"""What a bundle is, where it came from, and whether it still does what it did when it was made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.errors import BundleError
from regard.recipe import to_toml
from regard.tasks.engine import has_torch
from regard.tasks.forced import forced
from regard.tasks.lines import Languages
from regard.tasks.translate import load

_CLOSE = 1e-4
"""How far apart, in nats, two tokens may be in float32 that float64 puts in order."""


@dataclass(frozen=True)
class Inspection:
    """A bundle in plain values."""

    path: Path
    name: str
    family: str
    languages: str
    parameters: int
    tokens: tuple[int, int]  #: Of the source's and the target's vocabulary.
    size: int  #: Bytes of all files.
    digest: str  #: SHA-256 of the bundle as a whole, to be compared with one that its maker gives elsewhere.
    recipe: str  #: As TOML.
    provenance: dict[str, Any]
    golden: list[tuple[str, str]]  #: Golden sentences and their outputs.
    verified: bool  #: Whether the golden sentences were translated again, and came out the same.
    verified_in: str = ""  #: The numbers of that, float64 or float32.

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        golden = [list(pair) for pair in self.golden]
        return {**vars(self), "path": str(self.path), "tokens": list(self.tokens), "golden": golden}


def inspect(path: str | Path, *, again: bool = False) -> Inspection:
    """Read and check a bundle; with `again`, translate its golden sentences too.

    Raises BundleError if it is damaged, or if a golden sentence comes out different.
    """
    bundle = bundles.load(path)
    numbers = verify(bundle) if again else ""
    data = bundle.recipe.data
    return Inspection(
        path=bundle.path,
        name=bundle.name,
        family=bundle.recipe.model.family,
        languages=str(Languages(data.source_language, data.target_language, data.target_languages)),
        parameters=bundle.parameters,
        tokens=(len(bundle.source), len(bundle.target)),
        size=sum(file.size for file in bundle.files.values()),
        digest=bundle.digest,
        recipe=to_toml(bundle.recipe),
        provenance=bundle.provenance.model_dump(mode="json"),
        golden=[(g.source, g.output) for g in bundle.golden],
        verified=again,
        verified_in=numbers,
    )


def verify(bundle: Bundle) -> str:
    """Ask for the golden sentences again; BundleError shows each whose answer differs. Returns what was computed in.

    That is float64, in PyTorch. Where it is not installed it is float32, in the compiled decoder; there an answer may
    go another way from where two tokens are as likely as each other.
    """
    if not bundle.golden:
        raise BundleError("there are no golden sentences to translate again; save the model as a bundle with some.")
    if has_torch():
        from regard.tasks.golden import answers

        found = answers(bundle.model(), bundle.recipe, bundle.source, [g.source_ids for g in bundle.golden])
    else:
        found = _compiled_answers(bundle)
    differing = [
        f"  {golden.source!r}\n    should give {golden.output!r}\n    and gives   {bundle.target.decode(ids)!r}"
        for golden, ids in zip(bundle.golden, found, strict=True)
        if tuple(ids) != golden.target_ids
    ]
    if differing:
        versions = ", ".join(f"{name} {version}" for name, version in bundle.provenance.versions.items())
        raise BundleError(
            f"{bundle.path}: {len(differing)} of {len(bundle.golden)} golden sentences come out different:\n"
            + "\n".join(differing)
            + "\nEvery file is as it was saved, so the arithmetic differs; it was made with "
            + f"{versions or 'unknown versions'}."
        )
    return "float64" if has_torch() else "float32"


def _compiled_answers(bundle: Bundle) -> list[list[int]]:
    """What the compiled decoder answers in float32; the golden answer where the two are as good as each other."""
    translator = load(bundle)
    asked = {"precision": "float32", "mbr": "none"}
    given = translator.translate([golden.source for golden in bundle.golden], search=asked)
    found = [list(one.hypotheses[0].ids) if one.hypotheses else [] for one in given]
    for i, golden in enumerate(bundle.golden):
        both = [*golden.target_ids], found[i]
        made = forced(translator.engine.forcing("float32"), [golden.source_ids] * 2, both)
        one, other = (each.log_probabilities for each in made)
        same = [a == b for a, b in zip(*both, strict=False)]
        fork = [*same, False].index(False)
        if min(abs(one[fork] - other[fork]), abs(sum(one) - sum(other))) < _CLOSE:
            found[i] = both[0]
    return found
