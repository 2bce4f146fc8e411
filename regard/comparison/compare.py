"""Systems' outputs in, all that tells them apart out: `compare({"a": lines, "b": lines}, reference)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from regard.errors import DataError
from regard.metrics import METRICS, Counts, metric_names
from regard.text import read_lines

from .details import by_frequency, by_length, errors, most_different
from .significance import Tested, paired

Lines = str | Path | Sequence[str]
Systems = Mapping[str, Lines] | Sequence[str | Path]
_SAMPLES = {"bootstrap": 1000, "randomisation": 10_000}  # as sacrebleu's


class Comparing(BaseModel, frozen=True):
    """By what systems are compared."""

    metric: tuple[str, ...] = Field(("bleu", "chrf"), description="a metric of `regard evaluate`; may be repeated")
    language: str = Field("", description="code of the target language, by which metrics choose a tokenizer")
    test: Literal["bootstrap", "randomisation"] = Field(
        "bootstrap", description="the paired test: bootstrap or randomisation (approximate), as sacrebleu has them"
    )
    samples: int = Field(0, ge=0, description="samples of the test; 0: 1,000 of bootstrap, 10,000 of randomisation")
    seed: int = Field(12345, ge=0, description="seed of the test")
    examples: int = Field(10, ge=0, description="how many of the lines that differ most are shown")


@dataclass(frozen=True)
class Compared:
    """Everything that was found; lists have a place for each system, in the order of `systems`."""

    systems: tuple[str, ...]  #: The first is the baseline.
    lines: int
    test: str
    samples: int
    seed: int
    scores: dict[str, list[Tested]]  #: By metric.
    signatures: dict[str, str]
    lengths: list[dict[str, object]]  #: The first metric's figure by words of the reference.
    frequencies: list[dict[str, object]]  #: F1 of words by how often they occur in the training text.
    errors: list[dict[str, float | None]]
    examples: list[dict[str, object]]  #: The lines that differ most.

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def compare(
    systems: Systems,
    reference: Lines,
    *,
    source: Lines | None = None,
    train: Lines | None = None,
    settings: Comparing | None = None,
) -> Compared:
    """Compare systems with the first of them on the same lines.

    A system is a file of lines, a list of lines, or a bundle's directory, which translates `source`. Words are rare by
    their number in the text `train`, without one in the reference. Raises DataError for fewer than two systems, unequal
    numbers of lines and metrics that there are not.
    """
    settings = settings or Comparing()
    given = systems if isinstance(systems, Mapping) else _named([Path(each) for each in systems])
    if len(given) < 2:
        raise DataError(f"{len(given)} system to compare; give two or more, the baseline first.")
    names = metric_names(settings.metric)
    for name in names:
        if METRICS[name].count is None:
            raise DataError(f"{name} is measured on {METRICS[name].reads}, not on hypotheses; choose another metric.")
    right, asked = _read(reference), None if source is None else _read(source)
    if not right:
        raise DataError("the reference has no lines, so there is nothing to compare; give at least one.")
    if asked is not None:
        _check("the source", asked, right)
    outputs = [_output(lines, asked) for lines in given.values()]
    for name, lines in zip(given, outputs, strict=True):
        _check(name, lines, right)
    samples = settings.samples or _SAMPLES[settings.test]
    counted: dict[str, list[Counts]] = {
        name: [METRICS[name].counts(lines, right, settings.language) for lines in outputs] for name in names
    }
    return Compared(
        systems=tuple(given),
        lines=len(right),
        test=settings.test,
        samples=samples,
        seed=settings.seed,
        scores={name: paired(each, settings.test, samples, settings.seed) for name, each in counted.items()},
        signatures={name: each[0].signature for name, each in counted.items()},
        lengths=by_length(counted[names[0]], right),
        frequencies=by_frequency(outputs, right, right if train is None else _read(train)),
        errors=[errors(lines, right, asked) for lines in outputs],
        examples=most_different(outputs, right, settings.examples),
    )


def _named(paths: Sequence[Path]) -> dict[str, Lines]:
    """Files by their names, by their whole paths where names are equal."""
    if len({path.stem for path in paths}) == len(paths):
        return {path.stem: path for path in paths}
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise DataError(f"{twice[0]} is given twice; each system is given once.")
    return {str(path): path for path in paths}


def _read(given: Lines) -> list[str]:
    return read_lines(given) if isinstance(given, (str, Path)) else [str(line) for line in given]


def _output(given: Lines, source: list[str] | None) -> list[str]:
    """A system's lines; a bundle translates them."""
    if not (isinstance(given, (str, Path)) and Path(given).is_dir()):
        return _read(given)
    if source is None:
        raise DataError(f"{given} is a directory, and a bundle needs lines to translate; name them with --source.")
    from regard.tasks.translate import load

    return [translation.text for translation in load(given).translate(source)]


def _check(name: str, lines: Sequence[str], reference: Sequence[str]) -> None:
    if len(lines) != len(reference):
        raise DataError(
            f"{name} has {len(lines):,} lines, the reference {len(reference):,}; every line needs its own: check that "
            "all files come from one source file."
        )
