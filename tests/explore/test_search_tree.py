"""The tree of a beam search: what the search considered, in its own numbers, and what it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundles import ENGLISH, small_bundle

from regard.apps.cli import main
from regard.errors import ModelError, TextError
from regard.explore.search import SearchTree, search_tree
from regard.search.table import penalty_of
from regard.tasks.translate import Translator, load

MADE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tree") / "bundle"
    search = {"beam": 3, "extra_length": 4, "penalty": "gnmt", "alpha": 0.6}
    small_bundle(made, search=search)
    return made


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """Searched in float64, by the search that the tree looks at."""
    made = tmp_path_factory.mktemp("exact") / "bundle"
    small_bundle(made, search={"beam": 4, "precision": "exact", "extra_length": 3, "coverage": 0.2, "alpha": 0.4})
    return load(made, device="cpu")


def check_sound(tree: SearchTree) -> None:
    """What holds for every tree."""
    penalty = penalty_of(tree.penalty, tree.alpha)
    for number, node in enumerate(tree.nodes):
        above = tree.nodes[node.parent] if node.parent >= 0 else None
        assert node.parent < number
        assert node.step == (above.step + 1 if above else 1)
        assert node.total == pytest.approx((above.total if above else 0) + node.log_probability)
        if node.fate not in ("finished", "length"):
            assert node.score == pytest.approx(node.total / penalty(node.step))
        assert node.kept or node.fate == "pruned"
        below = [tree.nodes[each] for each in tree.children(number)]
        assert (node.fate == "open") == any(each.kept for each in below)
        assert node.fate not in ("finished", "length") or not below
    for step in {node.step for node in tree.nodes}:
        of_step = [node for node in tree.nodes if node.step == step]
        assert sum(node.kept and node.fate not in ("finished", "length") for node in of_step) <= tree.width
        places = [node.place for node in of_step]
        assert places == sorted(places) and max(places) <= 2 * tree.width  # noqa: PT018
    assert [tree.nodes[number].answer for number in tree.answers()] == [*range(1, len(tree.answers()) + 1)]


@pytest.mark.parametrize("line", ENGLISH[:4])
def test_what_it_answers_is_what_is_translated(exact: Translator, line: str) -> None:
    tree = search_tree(exact, line, n_best=4)
    check_sound(tree)
    [wanted] = exact.translate([line], n_best=4)
    found = [tree.path(number) for number in tree.answers()]
    assert [tuple(node.token for node in each) for each in found] == [h.tokens for h in wanted.hypotheses]
    assert [each[-1].total for each in found] == [h.log_probability for h in wanted.hypotheses]
    assert [each[-1].score for each in found] == [h.score for h in wanted.hypotheses]
    assert tree.translations == tuple(h.text for h in wanted.hypotheses)
    assert tuple(node.token for node in found[0]) == wanted.target_tokens


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_it_agrees_with_the_compiled_search(beam: int) -> None:
    translator = load(MADE, device="cpu")
    tree = search_tree(translator, "abc de", beam=beam, n_best=beam)
    check_sound(tree)
    [wanted] = translator.translate(["abc de"], beam=beam, n_best=beam)
    ends = [tree.nodes[number] for number in tree.answers()]
    assert [tuple(node.token for node in tree.path(number)) for number in tree.answers()] == [
        h.tokens for h in wanted.hypotheses
    ]
    assert [each.total for each in ends] == pytest.approx([h.log_probability for h in wanted.hypotheses], abs=1e-4)


def test_the_length_limit_ends_hypotheses(tmp_path: Path) -> None:
    small_bundle(tmp_path / "bundle", search={"beam": 3, "max_length": 2})
    tree = search_tree(load(tmp_path / "bundle", device="cpu"), ENGLISH[0])
    check_sound(tree)
    assert {node.fate for node in tree.nodes if node.step == 2} <= {"length", "finished"}


def test_what_is_no_tree_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no text"):
        search_tree(load(path, device="cpu"), " ")
    small_bundle(tmp_path / "bundle", search={"samples": 2})
    with pytest.raises(ModelError, match="sample is no tree"):
        search_tree(load(tmp_path / "bundle", device="cpu"), ENGLISH[0])


def test_the_command_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(path), ENGLISH[0], "--search"]) == 0
    assert "#1" in capsys.readouterr().out
    assert main(["look", str(path), ENGLISH[0], "--search", "--beam", "2", "--out", str(tmp_path / "tree.json")]) == 0
    plain = json.loads((tmp_path / "tree.json").read_text("utf-8"))
    assert plain == json.loads(search_tree(load(path, device="cpu"), ENGLISH[0], beam=2).to_json())
    assert plain["width"] == 2
    capsys.readouterr()
    for wrong in (["--search", "--steps"], ["--search", "--out", "a.svg"], ["--search", "--target", "Ein Mann"]):
        assert main(["look", str(path), ENGLISH[0], *wrong]) == 2
        assert "--search" in capsys.readouterr().err
