"""Subwords: text to ids to text changes nothing, and sampling is a pure function."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.errors import TextError
from regard.text import BEGIN, END, PAD, UNK, TextConfig, Tokenizer, read_lines

LINES = [
    f"{time}, {who} {what} {count} {where}."
    for time in ("Yesterday", "In 1984", "Am Samstag", "Tomorrow morning")
    for who in ("a young man in a blue shirt", "die alte Frau", "two dogs", "every teacher", "unser Nachbar")
    for what in ("was playing with", "verkauft", "looked for", "would never buy", "findet")
    for count in ("3", "27", "1.250,50", "600")
    for where in ("balls in the park", "Äpfel auf dem Markt", "你好，世界", "books behind the house", "Karten im Zug")
]
SIZE = 340
KINDS = ("bpe", "unigram")

anything = st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]))
likely = st.text(st.sampled_from("aeinrst .,0123\t\r ▁\U000f258101<2de>/sxÄ你\u2028\u200b\u0301\ufeff⁇\u2585"))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(LINES, size=SIZE, kind=request.param, symbols=["<2de>", "<2zh>"])


@settings(deadline=None)
@given(line=anything | likely)
@example("▁")
@example("\U000f2581")
@example("\U000f25810 ▁1 \U000f25811")
@example("  two  spaces  ")
@example("<s> </s> <pad> <unk> <0x41> <2de>x<2zh>")
@example("全角，ｆｕｌｌ ﬁ e\u0301 \u00e9 \u3000 \u200b")
@example("\r\t\x0b\u2028\u2585\ufffd\uffff\U0010ffff")
def test_text_to_ids_to_text_is_the_identity(tokenizer: Tokenizer, line: str) -> None:
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == line
    assert tokenizer.decode([BEGIN, *ids, END, PAD, PAD]) == line
    assert tokenizer.encode_lines([line]) == [ids]
    assert not {PAD, UNK, BEGIN, END} & set(ids)


@settings(deadline=None)
@given(line=anything | likely, seed=st.integers(0, 2**64))
def test_every_sample_reads_the_same(tokenizer: Tokenizer, line: str, seed: int) -> None:
    assert tokenizer.decode(tokenizer.sample(line, alpha=0.3, seed=seed)) == line


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, SIZE - 1)))
def test_any_ids_decode_to_something(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert isinstance(tokenizer.decode(ids), str)
    assert len(tokenizer.tokens(ids)) == len(ids)
    assert 0 <= tokenizer.unknown_count(ids) <= len(ids)


def test_sampling_depends_on_line_alpha_and_seed_alone(tokenizer: Tokenizer) -> None:
    wanted = [tokenizer.sample(line, alpha=0.3, seed=seed) for seed, line in enumerate(LINES)]
    backwards = [tokenizer.sample(line, alpha=0.3, seed=seed) for seed, line in reversed(list(enumerate(LINES)))]
    assert backwards[::-1] == wanted
    again = Tokenizer.from_bytes(tokenizer.to_bytes())
    sentencepiece.set_random_generator_seed(99)
    assert [again.sample(line, alpha=0.3, seed=seed) for seed, line in enumerate(LINES)] == wanted
    others = [tokenizer.sample(line, alpha=0.3, seed=seed + 1000) for seed, line in enumerate(LINES)]
    assert sum(one != other for one, other in zip(wanted, others, strict=True)) > len(LINES) / 2


def test_sampling_is_the_same_in_threads_that_disturb_each_other(tokenizer: Tokenizer) -> None:
    wanted = [tokenizer.sample(line, alpha=0.3, seed=seed) for seed, line in enumerate(LINES)]
    found: dict[int, list[list[int]]] = {}

    def work(number: int) -> None:
        found[number] = [tokenizer.sample(line, alpha=0.3, seed=seed) for seed, line in enumerate(LINES)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == wanted for number in range(4))


def test_a_model_survives_the_disk(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "subwords.model")
    again = Tokenizer.load(tmp_path / "subwords.model")
    assert again.to_bytes() == tokenizer.to_bytes()
    assert again.digest == tokenizer.digest
    assert [path.name for path in tmp_path.iterdir()] == ["subwords.model"]
    assert again.encode_lines(LINES) == tokenizer.encode_lines(LINES)


def test_learning_is_deterministic(tokenizer: Tokenizer) -> None:
    kind = (
        "bpe" if tokenizer.digest == Tokenizer.train(LINES, size=SIZE, symbols=["<2de>", "<2zh>"]).digest else "unigram"
    )
    again = Tokenizer.train(iter(LINES), size=SIZE, kind=kind, symbols=["<2de>", "<2zh>"])
    assert again.digest == tokenizer.digest


def test_special_ids_and_symbols(tokenizer: Tokenizer) -> None:
    assert (PAD, UNK, BEGIN, END) == (0, 1, 2, 3)
    assert len(tokenizer) == SIZE
    assert tokenizer.tokens([PAD, UNK, BEGIN, END]) == ["<pad>", "<unk>", "<s>", "</s>"]
    tokens = tokenizer.tokens(tokenizer.encode("<2zh> two dogs"))
    assert "<2zh>" in tokens
    assert tokenizer.id_of("<2zh>") == tokenizer.encode("<2zh> two dogs")[tokens.index("<2zh>")]
    assert tokenizer.id_of("<2fr>") is None
    assert tokenizer.id_of("<unk>") == UNK


def test_unseen_characters_are_spelt_in_bytes(tokenizer: Tokenizer) -> None:
    assert tokenizer.unknown_count(tokenizer.encode("two dogs")) == 0
    ids = tokenizer.encode("два")
    assert tokenizer.unknown_count(ids) == 6
    assert tokenizer.tokens(ids)[-1] == "<0xB0>"


def test_without_bytes_what_is_unseen_is_unknown() -> None:
    tokenizer = Tokenizer.train(LINES, size=120, settings=TextConfig(byte_fallback=False))
    assert tokenizer.unknown_count(tokenizer.encode("two Ж")) == 1
    assert UNK in tokenizer.encode("two Ж")


def test_ids_of_any_integer_type(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(LINES[0])
    for kind in (np.uint16, np.int64):
        assert tokenizer.decode(np.array([BEGIN, *ids, END, PAD], kind)) == LINES[0]


@pytest.mark.parametrize("ids", [[SIZE], [5, -1]])
def test_ids_outside_are_refused(tokenizer: Tokenizer, ids: list[int]) -> None:
    for use in (tokenizer.decode, tokenizer.tokens, tokenizer.unknown_count):
        with pytest.raises(TextError, match="outside of the vocabulary"):
            use(ids)


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TextError, match="surrogate"):
        tokenizer.encode("a\ud800")


@pytest.mark.parametrize(("normalization", "same"), [("identity", False), ("nfc", False), ("nfkc", True)])
def test_normalization_is_explicit_and_kept_in_the_model(normalization: str, same: bool) -> None:
    made = Tokenizer.train(LINES, size=SIZE, settings=TextConfig(normalization=normalization))  # type: ignore[arg-type]
    tokenizer = Tokenizer.from_bytes(made.to_bytes())
    assert tokenizer.normalization == normalization
    assert (tokenizer.encode("ｆｕｌｌ，") == tokenizer.encode("full,")) == same
    assert (tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")) == (normalization != "identity")
    assert tokenizer.decode(tokenizer.encode("▁ \U000f2581")) == "▁ \U000f2581"


def test_digits_apart() -> None:
    tokenizer = Tokenizer.train(
        ["1984 1984 1984 x"] * 20, size=300, settings=TextConfig(split_digits=True), shrink=True
    )
    assert tokenizer.tokens(tokenizer.encode("1984"))[-4:] == ["1", "9", "8", "4"]


@pytest.mark.parametrize("kind", KINDS)
def test_too_large_a_size_names_the_largest(kind: str) -> None:
    with pytest.raises(TextError, match=r"set size to at most ([\d,]+)") as caught:
        Tokenizer.train(LINES, size=20_000, kind=kind)  # type: ignore[arg-type]
    largest = int(str(caught.value).partition("at most ")[2].split(", ")[0].replace(",", ""))
    assert len(Tokenizer.train(LINES, size=largest, kind=kind)) == largest  # type: ignore[arg-type]
    assert len(Tokenizer.train(LINES, size=20_000, kind=kind, shrink=True)) == largest  # type: ignore[arg-type]


def test_too_small_a_size_says_so() -> None:
    with pytest.raises(TextError, match="no room for all characters"):
        Tokenizer.train(LINES, size=270)


@pytest.mark.parametrize("lines", [[], ["", "   "]])
def test_no_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(TextError, match="no text"):
        Tokenizer.train(lines, size=300)


@pytest.mark.parametrize("symbols", [[""], ["two words"], ["▁x"], ["<2de>", "<2de>"]])
def test_unusable_symbols_are_refused(symbols: list[str]) -> None:
    with pytest.raises(TextError, match="symbol"):
        Tokenizer.train(LINES, size=SIZE, symbols=symbols)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(b"not a model")
    with pytest.raises(TextError, match=r"a\.model"):
        Tokenizer.load(tmp_path / "a.model")
    with pytest.raises(TextError, match=r"b\.model"):
        Tokenizer.load(tmp_path / "b.model")


def test_a_model_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(tmp_path / "foreign"), vocab_size=60, minloglevel=2
    )
    with pytest.raises(TextError, match="--pad_id=0"):
        Tokenizer.load(tmp_path / "foreign.model")


def test_words_are_a_closed_vocabulary_and_each_unknown_one_counts() -> None:
    made = Tokenizer.train([*LINES, "(NP XX )NP", "a b  c"], size=8000, kind="words")
    words = Tokenizer.from_bytes(made.to_bytes())
    line = "(NP two zebras quagga dogs )NP"
    ids = words.encode(line)
    assert words.tokens(ids) == ["\u2581(NP", "\u2581two", "<unk>", "<unk>", "\u2581dogs", "\u2581)NP"]
    assert words.decode(ids) == "(NP two <unk> <unk> dogs )NP"
    assert words.encode(words.decode(ids)) == ids
    assert words.encode_lines([line, "two  dogs"]) == [ids, words.encode("two  dogs")]
    assert words.spans(line) == [(0, 3), (3, 7), (7, 14), (14, 21), (21, 26), (26, 30)]
    assert words.decode([UNK, *words.encode("dogs")]) == "<unk> dogs"
    assert all(words.decode(words.encode(known)) == known for known in [*LINES, "a b  c"])
    assert words.sample(line, alpha=0.5, seed=1) == ids
    assert len(Tokenizer.train(LINES, size=9, kind="words")) == 9


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_characters_are_one_token_each(byte_fallback: bool) -> None:
    characters = Tokenizer.train(LINES, size=8000, kind="characters", settings=TextConfig(byte_fallback=byte_fallback))
    assert len(characters) == 4 + 256 * byte_fallback + len(set("".join(LINES)))
    for line in [*LINES, "  two  spaces  ", " "]:
        assert characters.decode(characters.encode(line)) == line
        assert len(characters.encode(line)) == len(line)
    if byte_fallback:
        assert characters.decode(characters.encode("два Ж")) == "два Ж"
    else:
        assert characters.encode("жжж a") == [UNK, UNK, UNK, *characters.encode(" a")]
        assert characters.decode(characters.encode("жж a")) == "⁇⁇ a"
        assert characters.spans("жж a") == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_characters_without_room_for_bytes_are_refused() -> None:
    with pytest.raises(TextError, match="byte_fallback = false"):
        Tokenizer.train(LINES, size=100, kind="characters")


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="needs REGARD_DATA, a directory with multi30k/ in it")
@pytest.mark.parametrize("kind", KINDS)
def test_real_text_comes_back_and_is_familiar(kind: str) -> None:
    data = Path(os.environ["REGARD_DATA"]) / "multi30k"
    lines = [line for code in ("en", "de", "fr") for line in read_lines(data / f"train.{code}.gz")]
    tokenizer = Tokenizer.train(lines[::3], size=6000, kind=kind)  # type: ignore[arg-type]
    valid = [line for code in ("en", "de", "fr") for line in read_lines(data / f"val.{code}.gz")]
    encoded = tokenizer.encode_lines(valid)
    assert [tokenizer.decode(ids) for ids in encoded] == valid
    assert sum(map(tokenizer.unknown_count, encoded)) < 0.001 * sum(map(len, encoded))
    assert sum(map(len, encoded)) < sum(map(len, valid)) / 2.5, "tokens are much longer than characters"
