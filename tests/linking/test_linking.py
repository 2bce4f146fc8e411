"""Links learnt from text alone: equal to sums over every alignment, right where known, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.apps.cli import main
from regard.errors import DataError
from regard.linking.corpus import corpus_of
from regard.linking.hmm import NEAR, NOWHERE, Counted, Jumps, Linker, weigh
from regard.linking.link import spaced
from regard.text import write_lines

FAR, VOCABULARY = 200, 4


def kind_of(jump: int) -> int:
    """All long jumps to one side are of one kind."""
    return max(-NEAR - 1, min(NEAR + 1, jump)) + NEAR + 1


def summed(written: np.ndarray, unlinked: np.ndarray, jumps: Jumps | None, read: np.ndarray) -> tuple[np.ndarray, ...]:
    """One line's weights (T, S), jumps (2 FAR + 1,) and (V, kinds), by a sum over all (2 S) ** T ways, in float64.

    Jumps from before the line leave no word, so the last leaves them out.
    """
    words, positions = written.shape
    sums = np.zeros((words, positions)), np.zeros(2 * FAR + 1), np.zeros((VOCABULARY, 2 * NEAR + 3))
    total = 0.0
    for way in itertools.product(range(2 * positions), repeat=words):
        chance, before = 1.0, None
        made = tuple(np.zeros_like(each) for each in sums)
        for j, state in enumerate(way):
            at, linked = state % positions, state < positions
            jump = np.arange(positions) - (-1 if before is None else before)
            if linked or before is None:
                each = np.ones(positions) if jumps is None else jumps.chances[jump + FAR]
                if jumps is not None and before is not None:
                    each = each * jumps.likelier[read[before], [kind_of(x) for x in jump]]
                share = each[at] / each.sum()
            else:
                share = float(at == before)
            chance *= share * ((1 - NOWHERE) * written[j, at] if linked else NOWHERE * unlinked[j])
            if linked:
                made[0][j, at] += 1
                made[1][jump[at] + FAR] += 1
                if before is not None:
                    made[2][read[before], kind_of(jump[at])] += 1
            before = at
        total += chance
        for of_all, of_way in zip(sums, made, strict=True):
            of_all += chance * of_way
    return tuple(each / total for each in sums)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(("words", "positions"), [(1, 1), (1, 3), (3, 1), (4, 3), (3, 4), (2, 9)])
def test_weights_equal_the_sum_over_all_ways(words: int, positions: int, hidden: bool) -> None:
    draw = np.random.default_rng(words * 10 + positions)
    written = draw.uniform(0.01, 1, (2, words, positions)).astype(np.float32)
    unlinked = draw.uniform(0.01, 1, (2, words)).astype(np.float32)
    likelier = draw.uniform(0.1, 2, (VOCABULARY, 2 * NEAR + 3)).astype(np.float32)
    jumps = Jumps(draw.uniform(0.1, 1, 2 * FAR + 1), likelier) if hidden else None
    read = draw.integers(0, VOCABULARY, (2, positions))
    counted = Counted.nothing(1, VOCABULARY)
    found = weigh(written.copy(), unlinked.copy(), jumps, read, counted)
    known = [summed(written[n].astype(float), unlinked[n].astype(float), jumps, read[n]) for n in range(2)]
    np.testing.assert_allclose(found.positions, [each[0] for each in known], atol=2e-6)
    np.testing.assert_allclose(found.nowhere, 1 - found.positions.sum(axis=2), atol=2e-6)
    if hidden:
        np.testing.assert_allclose(counted.jumps, known[0][1] + known[1][1], atol=1e-5)
        np.testing.assert_allclose(counted.leaving, (known[0][2] + known[1][2]).ravel(), atol=1e-5)


def made_up(lines: int, seed: int = 1) -> tuple[list[str], list[str], list[frozenset[tuple[int, int]]]]:
    """A language whose words are those of another, in which two neighbours may change places."""
    draw = random.Random(seed)
    sources, targets, links = [], [], []
    for _ in range(lines):
        words = [draw.randrange(300) for _ in range(draw.randint(3, 9))]
        order = list(range(len(words)))
        if draw.random() < 0.5:
            i = draw.randrange(len(words) - 1)
            order[i], order[i + 1] = order[i + 1], order[i]
        sources.append(" ".join(f"w{word}" for word in words))
        targets.append(" ".join(f"V{words[i]}" for i in order))
        links.append(frozenset((i, j) for j, i in enumerate(order)))
    return sources, targets, links


def test_a_made_up_language_is_linked_rightly() -> None:
    sources, targets, links = made_up(3000)
    found = regard.link_lines(sources, targets)
    right = sum(len(links[n].intersection(one.links)) for n, one in enumerate(found))
    assert right / sum(map(len, links)) > 0.98
    assert right / sum(len(one.links) for one in found) > 0.98


def test_more_text_to_learn_from_helps() -> None:
    sources, targets, links = made_up(3000)
    few = regard.link_lines(sources[:40], targets[:40])
    more = regard.link_lines(sources[:40], targets[:40], learn=(sources[40:], targets[40:]))
    right = [sum(len(links[n].intersection(one.links)) for n, one in enumerate(each)) for each in (few, more)]
    assert len(more) == 40
    assert right[1] > right[0]


def test_directions_change_places() -> None:
    """Learnt with both sides exchanged, the same links come out the other way round."""
    sources, targets, _ = made_up(300)
    there, back = regard.link_lines(sources, targets), regard.link_lines(targets, sources)
    assert [{(j, i) for i, j in one.links} for one in there] == [set(one.links) for one in back]


def test_a_word_of_chinese_has_the_links_of_its_characters() -> None:
    sources = ["我 喜欢 猫", "我 喜欢 狗", "他 喜欢 猫", "他 看 狗", "我 看 猫"] * 40
    targets = ["I like cats", "I like dogs", "he likes cats", "he sees dogs", "I see cats"] * 40
    found = regard.link_lines(sources, targets)
    assert found[0].links == ((0, 0), (1, 1), (2, 2))
    assert spaced("我喜欢 cats very much") == "我 喜 欢 cats very much"


def test_words_spelt_alike_are_linked_where_nothing_else_tells() -> None:
    sources = ["Anna visits 1848", "republican militancy", "we see", "we hear", "you see"]
    targets = ["1848 besucht Anna", "Militanz republikanisch", "wir sehen", "wir hören", "ihr seht"]
    found = [set(one.links) for one in regard.link_lines(sources, targets)]
    assert {(0, 2), (2, 0)} <= found[0]
    assert found[1] == {(0, 1), (1, 0)}


def test_numbers_of_tokens_are_not_spelt_alike() -> None:
    assert corpus_of([[7, 8]], [[8, 7]]).alike.tolist() == [1.0] * 4


def test_empty_sides_have_no_links() -> None:
    found = regard.link_lines(["a b", "", "a", ""], ["x y", "x", "", ""])
    assert [one.links for one in found[1:]] == [(), (), ()]


@pytest.mark.parametrize(
    ("sources", "targets", "said"),
    [
        (["a"], [], "1 source lines but 0 target lines"),
        ([""], ["a"], "no pair of lines"),
        (["a " * 1001], ["b"], "line 1 has 1,001 and 1 words"),
    ],
)
def test_what_cannot_be_linked_is_refused(sources: list[str], targets: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        regard.link_lines(sources, targets)


def test_too_much_text_is_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.linking.corpus.free_memory", lambda: 100 * 64 + 63)
    with pytest.raises(DataError, match="121 pairs of a source and a target word; 100 are the most"):
        corpus_of([["a"] * 11], [["b"] * 11])


def test_too_many_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.linking.corpus.free_memory", lambda: 39_999)
    with pytest.raises(DataError, match="40 different words on both sides together; 39 are the most"):
        corpus_of([[f"a{i}"] for i in range(20)], [[f"b{i}"] for i in range(20)])


def test_groups_are_small_however_unlike_their_sides_are() -> None:
    corpus = corpus_of([["a"] * 500] * 30, [["x"]] * 30)
    assert sum(len(group.lines) for group in corpus.groups) == 30
    assert max(len(group.lines) * 500**2 for group in corpus.groups) <= 2 * 500**2


def test_both_directions_agree_more_from_pass_to_pass() -> None:
    sources, targets, _ = made_up(200)
    linker = Linker(corpus_of([x.split() for x in sources], [x.split() for x in targets]))
    agreed = []
    for _ in range(4):
        linker.learn()
        both = [linker.weights(group) for group in linker.corpus.groups]
        agreed.append(sum(float((a.positions * b.positions.transpose(0, 2, 1)).sum()) for a, b in both))
    assert agreed == sorted(agreed)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    sources, targets, links = made_up(600)
    write_lines("a.x", sources[:100])
    write_lines("a.y", targets[:100])
    write_lines("b.x", sources[100:])
    write_lines("b.y", targets[100:])
    write_lines("gold", [" ".join(f"{i + 1}-{j + 1}" for i, j in sorted(each)) for each in links[:100]])
    assert main(["link", "a.x", "a.y", "--learn", "b.x,b.y", "--gold", "gold", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["aer"]["value"] < 10
    assert main(["link", "a.x", "a.y", "--learn", "b.x,b.y", "--output", "links"]) == 0
    first = Path("links").read_text("utf-8").splitlines()[0]
    assert {tuple(map(int, link.split("-"))) for link in first.split()} == links[0]
    capsys.readouterr()
    assert main(["link", "a.x", "a.y", "--learn", "b.x"]) == 2
    assert "names no two files" in capsys.readouterr().err
    assert main(["link", "a.x", "a.y", "--threshold", "1.5"]) == 2


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="set REGARD_DATA to the folder with multi30k/")
def test_real_text_is_linked_sensibly() -> None:
    """Captions: small words and names find each other."""
    from regard.text import read_lines

    data = Path(os.environ["REGARD_DATA"]) / "multi30k"
    pairs = [read_lines(data / f"val.{language}.gz") for language in ("en", "de")]
    more = [read_lines(data / f"train.{language}.gz")[:1500] for language in ("en", "de")]
    found = regard.link_lines(*pairs, learn=(more[0], more[1]))
    words = [(one.source.split()[i].lower(), one.target.split()[j].lower()) for one in found for i, j in one.links]
    of_man = [target for source, target in words if source == "man"]
    assert of_man.count("mann") > 0.8 * len(of_man)
    assert len(of_man) > 100
