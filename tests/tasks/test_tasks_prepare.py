"""Preparing: raw files to subwords and stores, once."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from regard.data.store import lowest_of
from regard.errors import DataError, TextError
from regard.settings import DataConfig, Filters
from regard.tasks import prepare as preparing
from regard.tasks.prepare import Prepared, prepare
from regard.text import TextConfig, read_lines, write_lines

WORDS = ["the", "old", "man", "saw", "a", "young", "dog", "in", "der", "Stadt", "und", "kauft", "Äpfel", "你好", "世界"]
TEXT = TextConfig(size=310, shrink=True)


def some_lines(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(8, 20))) for _ in range(count)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files of 200 training and 20 validation pairs, and a TSV of 30 more training pairs."""
    names = {}
    for seed, (name, count) in enumerate([("train.en", 200), ("train.de", 200), ("val.en", 20), ("val.de", 20)]):
        names[name] = str(tmp_path / f"{name}.gz")
        write_lines(names[name], some_lines(count, seed))
    names["more.tsv"] = str(tmp_path / "more.tsv")
    write_lines(names["more.tsv"], map("\t".join, zip(some_lines(30, 5), some_lines(30, 6), strict=True)))
    return names


def both(files: dict[str, str], **other: Any) -> DataConfig:
    return DataConfig(source=files["train.en"], target=files["train.de"], **other)


def with_valid(files: dict[str, str], **other: Any) -> DataConfig:
    return both(files, valid_source=files["val.en"], valid_target=files["val.de"], **other)


def sources(prepared: Prepared, name: str = "train") -> list[str]:
    store = getattr(prepared, name)
    return [store.source.text(line) for line in range(len(store))]


def made(root: Path) -> dict[Path, int]:
    """Every file with the time it was made."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_given_validation_is_taken_whole(files: dict[str, str], tmp_path: Path) -> None:
    write_lines(files["val.en"], ["", *some_lines(18, 2), "x" * 1000])
    prepared = prepare(with_valid(files), TEXT, tmp_path / "run")
    assert (len(prepared.train), len(prepared.valid)) == (200, 20), "filters are not for validation"
    assert sources(prepared) == some_lines(200, 0)
    assert prepared.source_tokenizer is prepared.target_tokenizer
    assert str(prepared.report) == "200 pairs read, 200 kept"
    assert prepared.data_hashes[files["val.en"]] == hashlib.sha256(Path(files["val.en"]).read_bytes()).hexdigest()
    assert set(prepared.data_hashes) == {files[name] for name in ("train.en", "train.de", "val.en", "val.de")}


def test_nothing_is_made_twice(files: dict[str, str], tmp_path: Path) -> None:
    first = prepare(both(files), TEXT, tmp_path / "run")
    before = made(tmp_path / "run")
    again = prepare(both(files), TEXT, tmp_path / "run")
    assert made(tmp_path / "run") == before
    assert again.source_tokenizer.digest == first.source_tokenizer.digest
    assert again.report == first.report
    assert (sources(again), sources(again, "valid")) == (sources(first), sources(first, "valid"))


def test_settings_of_batches_and_sampling_do_not_matter(files: dict[str, str], tmp_path: Path) -> None:
    prepare(both(files), TEXT, tmp_path / "run")
    before = made(tmp_path / "run")
    data = both(files, layout="packed", batch_tokens=99, pool=3)
    prepare(data, TEXT.model_copy(update={"sampling": 0.1}), tmp_path / "run")
    assert made(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ("text", set()),
        ("training file", set()),
        ("filters", {"subwords.model"}),
        ("validation file", {"subwords.model", "train/00000.shard"}),
    ],
)
def test_what_changed_is_made_again_and_no_more(
    files: dict[str, str], tmp_path: Path, change: str, stays: set[str]
) -> None:
    data, text, root = with_valid(files), TEXT, tmp_path / "run" / "prepared"
    prepare(data, text, tmp_path / "run")
    before = made(root)
    if change == "text":
        text = TEXT.model_copy(update={"size": 300})
    elif change == "filters":
        data = with_valid(files, filters=Filters(max_length=30))
    else:
        name = "train.en" if change == "training file" else "val.en"
        write_lines(files[name], some_lines(200 if name == "train.en" else 20, 77))
    prepared = prepare(data, text, tmp_path / "run")
    after = made(root)
    for name in ("subwords.model", "train/00000.shard"):
        assert (before[root / name] == after[root / name]) == (name in stays), name
    if change == "validation file":
        assert sources(prepared, "valid") == some_lines(20, 77)
    if change == "training file":
        assert sources(prepared) == some_lines(200, 77)


def test_a_damaged_subword_model_is_made_again(files: dict[str, str], tmp_path: Path) -> None:
    first = prepare(both(files), TEXT, tmp_path / "run")
    (tmp_path / "run" / "prepared" / "subwords.model").write_bytes(b"damaged")
    assert prepare(both(files), TEXT, tmp_path / "run").source_tokenizer.digest == first.source_tokenizer.digest


def test_held_out_lines_are_never_trained_on(files: dict[str, str], tmp_path: Path) -> None:
    # The same source twice must fall on one side, whatever its translations.
    lines = [line for line in some_lines(100, 0) for _ in "ab"]
    write_lines(files["train.en"], lines)
    prepared = prepare(both(files, valid_lines=7), TEXT, tmp_path / "run")
    train, valid = sources(prepared), sources(prepared, "valid")
    assert not set(train) & set(valid)
    assert sorted(train + valid) == sorted(lines)
    assert len(set(valid)) == 7
    reordered = lines[::-1]
    write_lines(files["train.en"], reordered)
    again = prepare(both(files, valid_lines=7), TEXT, tmp_path / "other")
    assert set(sources(again, "valid")) == set(valid), "chosen by what a line says, not where it stands"


def test_at_most_a_tenth_is_held_out(files: dict[str, str], tmp_path: Path) -> None:
    prepared = prepare(both(files, valid_lines=1000), TEXT, tmp_path / "run")
    assert (len(prepared.train), len(prepared.valid)) == (180, 20)


def test_the_lowest_values_are_found_in_little_memory() -> None:
    rng = random.Random(0)
    values = [rng.randrange(2**64) for _ in range(3000)] * 2
    rng.shuffle(values)
    assert lowest_of(values, 10) == sorted(set(values))[:10]
    assert lowest_of([5, 3, 5], 10) == [3, 5]


def test_thinning_spreads_over_the_corpus() -> None:
    pairs = [(str(index), "") for index in range(1000)]
    assert preparing._thinned(pairs, 1000) == pairs
    kept = [int(source) for source, _ in preparing._thinned(pairs, 100)]
    assert kept == list(range(0, 1000, 16))


def test_separate_vocabularies(files: dict[str, str], tmp_path: Path) -> None:
    prepared = prepare(both(files), TEXT.model_copy(update={"joint": False}), tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "prepared").glob("*.model")} == {"source.model", "target.model"}
    assert prepared.source_tokenizer.digest != prepared.target_tokenizer.digest
    again = prepare(both(files), TEXT.model_copy(update={"joint": False}), tmp_path / "run")
    assert again.target_tokenizer.digest == prepared.target_tokenizer.digest


def test_several_files_are_one_corpus(files: dict[str, str], tmp_path: Path) -> None:
    one = prepare(DataConfig(source=files["more.tsv"]), TEXT, tmp_path / "one")
    assert len(one.train) + len(one.valid) == 30
    data = with_valid(files).model_copy(update={"source": (files["train.en"],) * 2, "target": (files["train.de"],) * 2})
    assert len(prepare(data, TEXT, tmp_path / "two").train) == 400


def test_a_cache_is_shared_by_like_runs(files: dict[str, str], tmp_path: Path) -> None:
    data = both(files, cache=str(tmp_path / "cache"))
    first = prepare(data, TEXT, tmp_path / "one")
    second = prepare(data, TEXT, tmp_path / "two")
    other = prepare(data.model_copy(update={"filters": Filters(max_length=40)}), TEXT, tmp_path / "two")
    assert first.train.path == second.train.path != other.train.path
    assert not (tmp_path / "one").exists()


def test_tags_are_one_token_and_must_be_there(files: dict[str, str], tmp_path: Path) -> None:
    lines = [f"<2{code}> {line}" for code, line in zip(["de", "zh"] * 100, some_lines(200, 0), strict=True)]
    write_lines(files["train.en"], lines)
    data = both(files, target_languages=("de", "zh"))
    tokenizer = prepare(data, TEXT, tmp_path / "run").source_tokenizer
    assert all(tokenizer.id_of(tag) in tokenizer.encode(f"{tag} the old man") for tag in ("<2de>", "<2zh>"))
    with pytest.raises(DataError, match=r"line 2 .*'<2zh> .* does not start with a tag .*<2de>, <2fr>"):
        prepare(both(files, target_languages=("de", "fr")), TEXT, tmp_path / "run")


def test_filters_report_file_lines(files: dict[str, str], tmp_path: Path) -> None:
    lines = some_lines(200, 0)
    lines[123] = ""
    write_lines(files["train.en"], lines)
    report = prepare(both(files), TEXT, tmp_path / "run").report
    assert report.examples == {"empty": 124}


def test_progress_is_told(files: dict[str, str], tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    prepare(with_valid(files), TEXT, tmp_path / "run", progress=lambda what, done: told.append((what, done)))
    assert told == [("pairs to learn subwords from", 200), ("pairs encoded", 200), ("pairs encoded", 20)]


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (["a"] * 199, TextError, "199 lines"),
        (["a"] * 200, DataError, "too few to hold some out"),
        ([""] * 200, DataError, "too few"),
    ],
)
def test_unusable_text_is_refused(
    files: dict[str, str], tmp_path: Path, content: list[str], kind: type[Exception], words: str
) -> None:
    write_lines(files["train.en"], content)
    with pytest.raises(kind, match=words):
        prepare(both(files), TEXT, tmp_path / "run")


def test_missing_files_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"nothing\.en.*check the path"):
        prepare(DataConfig(source="nothing.en", target="nothing.de"), TEXT, tmp_path / "run")


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": ("a", "b"), "target": "c"},
        {"source": (), "target": ()},
        {"source": "a", "target": "b", "valid_source": ("a", "b"), "valid_target": ("c",)},
        {"source": "a", "target": "b", "valid_target": "c"},
        {"source": "a", "target": "b", "layout": "square"},
        {"source": "a", "target": "b", "targets": "c"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate(wrong)


def test_pairs_that_share_text_with_a_file_are_not_learnt_from(tmp_path: Path, files: dict[str, str]) -> None:
    source, target = read_lines(files["train.en"]), read_lines(files["train.de"])
    write_lines(tmp_path / "secret", [source[3], target[5], "nobody says this here"])
    data = with_valid(files, exclude=str(tmp_path / "secret"), exclude_words=8)
    prepared = prepare(data, TEXT, tmp_path / "out")
    learnt = sources(prepared)
    assert source[3] not in learnt
    assert source[5] not in learnt, "its target is excluded"
    assert len(learnt) >= len(source) - 4
    assert str(tmp_path / "secret") in prepared.data_hashes
    before = prepared.train.fingerprint
    assert prepare(data, TEXT, tmp_path / "out").train.fingerprint == before
    write_lines(tmp_path / "secret", ["nobody says this here"])
    assert source[3] in sources(prepare(data, TEXT, tmp_path / "out")), "the file's content counts, not its name"


def test_a_line_longer_than_the_models_positions_is_named_before_anything_is_learnt(
    files: dict[str, str], tmp_path: Path
) -> None:
    lines = some_lines(200, 0)
    lines[123] = " ".join(["x y z"] * 40)
    write_lines(files["train.en"], lines)
    data, out = with_valid(files), tmp_path / "run"
    most = int(prepare(data, TEXT, out).train.source.lengths.max()) + 1
    with pytest.raises(
        DataError, match=rf"train\.en\.gz: line 124: the source has {most} tokens.*{most - 1}; set data.*{most - 2}"
    ):
        prepare(data, TEXT, out, longest=(most - 1, 0))
    assert prepare(data, TEXT, out, longest=(most, 0)).longest == (most, 0)
    targets = some_lines(20, 3)
    targets[5] = " ".join(["x y z"] * 40)
    write_lines(files["val.de"], targets)
    with pytest.raises(DataError, match=r"val\.de|val\.en\.gz: line 6: the target has .*split or remove it"):
        prepare(data, TEXT, out, longest=(most, 90))


def test_a_label_is_one_token_and_the_line_of_another_is_named(tmp_path: Path) -> None:
    lines = [f"{'yes' if index % 2 else 'no'} some text {index}" for index in range(40)]
    write_lines(tmp_path / "a", lines)
    data = DataConfig(source=str(tmp_path / "a"), labels="first")
    with pytest.raises(DataError, match=r"a: line \d+: the label '(yes|no)' is \d+ tokens, and a class is one"):
        prepare(data, TextConfig(size=300, shrink=True, kind="characters"), tmp_path / "run")
    words = TextConfig(size=300, shrink=True, joint=False, target_kind="words")
    assert len(prepare(data, words, tmp_path / "words").train) == 36


def test_stores_of_version_0_1_are_used_as_they_are(files: dict[str, str], tmp_path: Path) -> None:
    prepare(both(files), TEXT, tmp_path / "run")
    header = tmp_path / "run" / "prepared" / "train" / "store.json"
    header.write_text(header.read_text("utf-8").replace('"tokens"', '"pieces"'), "utf-8")
    before = made(tmp_path / "run")
    assert len(prepare(both(files), TEXT, tmp_path / "run").train) == 180
    assert made(tmp_path / "run") == before


def test_the_languages_of_a_translation_memory_decide_what_is_read(tmp_path: Path) -> None:
    texts = [(code, f"{code} {i} a b c") for i in range(40) for code in ("en", "de", "fr")]
    tuvs = [f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts]
    units = "".join(f"<tu>{''.join(tuvs[i : i + 3])}</tu>" for i in range(0, 120, 3))
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{units}</body></tmx>", "utf-8")
    data = DataConfig(source=str(tmp_path / "a.tmx"), source_language="en", target_language="de")
    german = prepare(data, TEXT, tmp_path / "run")
    assert german.train.target.text(0).startswith("de ")
    french = prepare(data.model_copy(update={"target_language": "fra"}), TEXT, tmp_path / "run")
    assert french.train.target.text(0).startswith("fr ")
