"""Corpora that are handed in: any iterable becomes files of the run, told from one another by what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard import recipe as recipes
from regard.data.corpus import Corpus, sets_of
from regard.errors import DataError, RecipeError, TextError
from regard.recipe import Recipe
from regard.tasks.prepare import prepare, with_corpus
from regard.text import write_lines

WORDS = ["the", "old", "man", "saw", "a", "young", "dog", "in", "der", "Stadt", "und", "kauft", "Äpfel"]
PAIRS = [(" ".join(WORDS[i % 7 :][:6]) + f" {i}", " ".join(WORDS[i % 5 :][:6])) for i in range(60)]


def recipe(**data: Any) -> Recipe:
    return recipes.validate({"data": data, "text": {"size": 330, "shrink": True}, "model": {"width": 16, "heads": 2}})


def read(path: str | None) -> list[Any]:
    return [tuple(json.loads(line).values()) for line in Path(str(path)).read_text("utf-8").splitlines()]


def generated() -> Iterator[tuple[str, str]]:
    yield from PAIRS


def test_every_kind_of_iterable_is_the_same_corpus(tmp_path: Path) -> None:
    columns = {"source": [pair[0] for pair in PAIRS], "target": [pair[1] for pair in PAIRS]}
    dicts = [dict(zip(columns, pair, strict=True)) for pair in PAIRS]
    write_lines(tmp_path / "a.tsv", map("\t".join, PAIRS))
    given: dict[str, Any] = {
        "list": PAIRS,
        "generator": generated(),
        "lists": map(list, PAIRS),
        "columns": zip(*columns.values(), strict=True),
        "dicts": dicts,
        "a file": Corpus(tmp_path / "a.tsv"),
    }
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(columns)
    given |= {"datasets": dataset, "streamed": dataset.to_iterable_dataset()}
    digests = {}
    for name, corpus in given.items():
        made = with_corpus(recipe(), corpus, tmp_path / name)
        assert read(made.data.sources[0]) == PAIRS, name
        prepared = prepare(made.corpus, made.spelling, tmp_path / name)
        digests[name] = (prepared.train.fingerprint, *prepared.data_hashes.values())
        assert len(prepared.train) + len(prepared.valid) == 60
    assert len(set(digests.values())) == 1, digests


def test_sets_by_name_and_references(tmp_path: Path) -> None:
    sets = {"train": PAIRS, "validation": PAIRS[:7], "test": [("a", ["b", "c"]), ("d", "e")], "other": PAIRS[:2]}
    made = with_corpus(recipe(), sets, tmp_path)
    prepared = prepare(made.corpus, made.spelling, tmp_path)
    assert (len(prepared.train), len(prepared.valid)) == (60, 7)
    found = {name: (sources, references) for name, sources, references in sets_of(made.data, prepared.valid)}
    assert found["test"] == (["a", "d"], [["b", "e"], ["c", "e"]])
    assert list(found) == ["dev", "test", "other"]
    assert recipes.parse(recipes.to_toml(made)) == made, "the run's own recipe names it all"


def test_lines_are_text_of_one_side(tmp_path: Path) -> None:
    lines = [source for source, _ in PAIRS]
    for number, corpus in enumerate((lines, [{"text": line, "id": 1} for line in lines], iter(lines))):
        made = with_corpus(recipe(), corpus, tmp_path / str(number))
        assert made.data.side == "text"
        prepared = prepare(made.corpus, made.spelling, tmp_path / str(number))
        assert len(prepared.train) + len(prepared.valid) == 60
    named = with_corpus(recipe(fields=["line"]), [{"line": line} for line in lines], tmp_path / "named")
    assert read(named.data.texts[0]) == [(line,) for line in lines]


def test_fields_may_lie_inside_of_records(tmp_path: Path) -> None:
    records = [{"id": "7", "translation": {"en": source, "de": target}} for source, target in PAIRS]
    made = with_corpus(recipe(fields=["translation.en", "translation.de"]), records, tmp_path)
    assert read(made.data.sources[0]) == PAIRS


def test_going_on_is_with_the_same_corpus_or_what_was_written_down(tmp_path: Path) -> None:
    first = with_corpus(recipe(), generated(), tmp_path)
    before = prepare(first.corpus, first.spelling, tmp_path).train.fingerprint
    again = with_corpus(recipe(), generated(), tmp_path, resume=True)
    assert again == first
    with pytest.raises(DataError, match="begun with another train set"):
        with_corpus(recipe(), PAIRS[::-1], tmp_path, resume=True)
    assert prepare(again.corpus, again.spelling, tmp_path).train.fingerprint == before, "nothing was lost"
    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["train.jsonl"]


@pytest.mark.parametrize(
    ("corpus", "kind", "words"),
    [
        ([], DataError, "no item in train; an iterator gives its items once"),
        (Corpus(PAIRS, valid=iter([])), DataError, "no item in valid"),
        ([3], DataError, "item 1 is 3, .* must be a pair"),
        ([*PAIRS, "a line"], DataError, "item 61 is 'a line'"),
        ([("a", "b", "c")], DataError, "must be a pair"),
        ([("a", "b\nc")], TextError, "item 1, field 'target' contains a line break at character 2"),
        ([("a", "b\0")], TextError, "NUL"),
        ([{"source": "x"}], TextError, "item 1 has no field 'target'; its fields are: source"),
        ({"source": ["a"], "target": ["b"]}, DataError, "one is train; this one has: source, target"),
        (Corpus("nothing.tsv"), TextError, "no such file"),
        (Corpus(PAIRS, test={"../x": PAIRS}), DataError, "a test set cannot be called '../x'"),
    ],
)
def test_what_is_no_corpus_is_refused(tmp_path: Path, corpus: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        with_corpus(recipe(), corpus, tmp_path / "run")
    assert list(tmp_path.rglob("*.part")) == []
    assert not (tmp_path / "x.jsonl").exists()


def test_a_corpus_and_files_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leave one of them out"):
        with_corpus(recipe(source="a", target="b"), PAIRS, tmp_path)


def test_the_objective_and_the_corpus_must_agree(tmp_path: Path) -> None:
    wanted = recipes.validate({"data": {}, "train": {"objective": "translate"}})
    with pytest.raises(RecipeError, match="learns from pairs of lines and the data are text of one side"):
        with_corpus(wanted, ["a line"], tmp_path)


def test_nothing_to_learn_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text is named"):
        prepare(recipe().data, recipe().text, tmp_path)
