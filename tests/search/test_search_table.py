"""The table of searches, the options that lead to it, and what they refuse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from bundles import ENGLISH, UNCOMPILED, small_bundle
from torch import Tensor

from regard import bundle as bundles
from regard import recipe as recipes
from regard.apps.cli import main
from regard.engine import decoding
from regard.errors import ModelError, RecipeError, RegardWarning
from regard.models.interface import EncoderDecoder
from regard.search.beam import beam_search, diverse_search
from regard.search.hypotheses import Hypothesis, Problem
from regard.search.table import SEARCHES, Constraints, Options, Search, SearchConfig, penalty_of, search_of
from regard.tasks.translate import Translator, load
from regard.terminology import automaton
from regard.terminology.automaton import Terms, occurs
from regard.text import write_lines

LINES = ENGLISH[:4]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "bundle"
    small_bundle(path, search={"beam": 3, "extra_length": 20})
    return path


@pytest.fixture(scope="module")
def translator(bundle: Path) -> Translator:
    return load(bundle)


def _second(problem: Problem[Any], settings: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
    return [found[1:2] for found in beam_search(problem, width=max(2, settings.beam), n_best=2)]


def test_a_search_of_ones_own_is_one_entry(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SEARCHES, "second-best", Search(_second))
    translator = load(bundle)
    wanted = [t.hypotheses[1].text for t in translator.translate(LINES, n_best=2)]
    assert [t.text for t in translator.translate(LINES, method="second-best")] == wanted
    write_lines(tmp_path / "lines", LINES)
    for flag in (["--search", "second-best"], ["--set", "method=second-best"]):
        assert main(["translate", str(bundle), str(tmp_path / "lines"), *flag]) == 0
        assert capsys.readouterr().out.splitlines() == wanted
    small_bundle(tmp_path / "other", search={"method": "second-best", "beam": 3, "extra_length": 20})
    assert [t.text for t in load(tmp_path / "other").translate(LINES)] == wanted
    with pytest.raises(ModelError, match="method = second-best chooses at the end"):
        next(translator.stream(LINES[0], method="second-best"))
    with pytest.raises(ModelError, match="the search second-best takes no samples"):
        translator.translate(LINES, method="second-best", samples=2)


@pytest.mark.parametrize(
    ("named", "derived"),
    [
        ({"method": "greedy"}, {"beam": 1}),
        ({"method": "beam"}, {}),
        ({"method": "sample", "seed": 3}, {"samples": 1, "seed": 3}),
        ({"method": "diverse", "groups": 3}, {"groups": 3}),
    ],
    ids=str,
)
def test_a_search_by_name_is_the_one_that_its_settings_speak_of(
    translator: Translator, named: dict[str, Any], derived: dict[str, Any]
) -> None:
    assert translator.translate(LINES, **named) == translator.translate(LINES, **derived)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ModelError, match=r"search.method = 'bean': must be one of greedy, beam"):
        search_of(SearchConfig(method="bean"))
    with pytest.raises(ModelError, match="writes all positions at once, and this model token by token"):
        search_of(SearchConfig(method="mask-predict"))
    with pytest.raises(ModelError, match="writes token by token, and this model all positions at once"):
        search_of(SearchConfig(method="beam"), step_by_step=False)
    with pytest.raises(ModelError, match="the search greedy takes no groups"):
        search_of(SearchConfig(method="greedy", groups=2))
    with pytest.raises(ModelError, match=r"n_best \(3\) ranks the hypotheses of a beam, and greedy search has one"):
        search_of(SearchConfig(method="greedy"), n_best=3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n_best": 1_000_000}, "n_best is 1000000; it must be from 1 to 1000"),
        ({"beam": 2**30}, "beam = 1073741824: must be less than or equal to 1000"),
        ({"batch_size": 2**64}, "batch_size = 18446744073709551616"),
        ({"extra_length": 10**9}, "extra_length = 1000000000"),
        ({"alpha": 1e308}, r"alpha = 1e\+308"),
        ({"beem": 3}, "translate has no option 'beem'; did you mean 'beam'"),
        ({"precision": "float16"}, "precision = 'float16'"),
    ],
    ids=str,
)
def test_settings_beyond_any_machine_are_refused(translator: Translator, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        translator.translate(LINES, **asked)


@pytest.mark.parametrize(
    "asked", [{}, {"beam": 1}, {"samples": 2}, {"groups": 3}, {"constraints": Constraints(prefix="Ein")}], ids=str
)
def test_weights_that_are_not_numbers_are_said_to_be(bundle: Path, asked: dict[str, Any]) -> None:
    held = bundles.load(bundle)
    translator = Translator(cast(EncoderDecoder, held.model()), held.recipe, held.source, held.target)
    with torch.no_grad():
        next(iter(translator.model.named_parameters()))[1].fill_(float("nan"))
    with pytest.raises(ModelError, match="the model's weights give no finite scores"):
        translator.translate(LINES, max_length=5, **asked)


def test_options_are_one_object(translator: Translator) -> None:
    options = Options.of(beam=2, n_best=2, constraints=Constraints(prefix="Ein"))
    assert options.search == {"beam": 2}
    assert translator.translate(LINES, options) == translator.translate(
        LINES, search={"beam": 2}, n_best=2, constraints=Constraints(prefix="Ein")
    )
    assert Options.of(options, beam=3, alpha=None).search == {"beam": 3}
    assert Options.of(options, beam=3).n_best == 2


@pytest.mark.parametrize("flag", ["--batch-independent", "--no-batch-independent", "--bfloat16"])
def test_flags_of_older_versions_name_the_new_one(bundle: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(bundle), flag]) == 2
    assert "there is no such option any more; use --precision" in capsys.readouterr().err


def test_an_older_recipes_precision_means_what_it_meant() -> None:
    recipe = '[data]\nsource = "a"\ntarget = "b"\n[search]\nprecision = "{}"\n{}'
    for old, now in (("float32", "auto"), ("auto", "int8"), ("int8", "int8"), ("bfloat16", "bfloat16")):
        found = recipes.parse(recipe.format(old, "no_repeat = 0"), trained=True)
        assert found.search.precision == now
        assert recipes.parse(recipe.format(old, ""), trained=True).search.precision == old
    with pytest.raises(RecipeError, match="no_repeat_ngram_size"):
        recipes.parse(recipe.format("float32", "no_repeat = 0"))


@pytest.mark.parametrize(
    ("family", "search", "message"),
    [
        ("seq2seq", "coverage = 0.2", "search.coverage counts what attention has read"),
        ("mask-predict", "min_length = 3", "all positions at once and takes no min_length"),
        ("mask-predict", "groups = 2", "takes no groups"),
        ("transformer", "shortlist = true", "a new bundle has not learnt yet"),
        ("transformer", 'method = "bean"', "search.method = 'bean': must be one of"),
        ("transformer", 'method = "mask-predict"', "writes all positions at once, and this model token by token"),
    ],
)
def test_what_a_family_cannot_honour_is_refused_before_training(family: str, search: str, message: str) -> None:
    recipe = f'[data]\nsource = "a"\ntarget = "b"\n[model]\nfamily = "{family}"\n[search]\n{search}\n'
    with pytest.raises(RecipeError, match=message):
        recipes.parse(recipe)
    assert recipes.parse(recipe, trained=True).model.family == family, "a bundle that was made before can be read"


@pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))
def test_what_the_engine_cannot_do_is_said_once(bundle: Path, tmp_path: Path) -> None:
    small_bundle(tmp_path / "other", model=UNCOMPILED, search={"beam": 3, "extra_length": 20})
    translator = load(tmp_path / "other")
    exact = translator.translate(LINES)  # auto is exact where the engine refuses, and warns of nothing
    with pytest.warns(RegardWarning, match="int8 is not to be had here, and float64 is used instead: it does not"):
        assert translator.translate(LINES, precision="int8") == exact
    assert translator.translate(LINES, precision="int8") == exact
    with pytest.warns(RegardWarning, match="precision float32 is PyTorch's here, .* translated with it: it does not"):
        translator.translate(LINES, precision="float32")
    translator = load(bundle)
    assert translator.backend(translator.searching(Options.of(precision="int8", coverage=0.2))).precision == "int8"
    assert translator.backend(translator.searching(Options())).precision == "float32"
    assert translator.backend(translator.searching(Options.of(precision="exact"))).precision == "float64"


@pytest.mark.parametrize("precision", ["exact", "float32", "int8"])
@pytest.mark.parametrize("more", [{}, {"samples": 2}, {"constraints": Constraints(include=("Haus",))}], ids=str)
def test_several_threads_may_translate_at_once(bundle: Path, precision: str, more: dict[str, Any]) -> None:
    """Each begins with an empty cache, so that they make and keep the same things at the same time."""
    if precision != "exact" and decoding.refusal() is not None:
        pytest.skip(str(decoding.refusal()))
    asked: dict[str, Any] = {"precision": precision, "confidence": True, **more}
    wanted = [[t.to_dict() for t in load(bundle).translate(LINES[i:], **asked)] for i in range(4)]
    shared = load(bundle)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda i: [t.to_dict() for t in shared.translate(LINES[i % 4 :], **asked)], range(16))
        for i, one in enumerate(found):
            assert one == wanted[i % 4]


def test_a_diverse_beam_shuns_what_was_taken_at_the_last_permitted_position() -> None:
    values = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()  # the last is the end

    class Nothing:
        def select(self, rows: Tensor) -> Nothing:
            return self

    def step(tokens: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        return values.expand(len(tokens), -1), state

    problem = Problem(step, Nothing(), torch.tensor([9]), torch.tensor([1]), 3, penalty_of("none", 0.0))
    [found] = diverse_search(problem, groups=3, diversity=9.0, width=3, n_best=3)
    assert [h.ids for h in found] == [[0], [1], [2]]
    assert [h.log_probability for h in found] == pytest.approx(values[:3].tolist())


def test_terms_are_found_as_they_are_alone_and_a_line_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(1)

    def word(most: int) -> str:
        return "".join(
            chr(97 + int(i))
            for i in torch.randint(0, 3, (int(torch.randint(1, most, (), generator=draw)),), generator=draw)
        )

    terms = [" ".join(word(9) for _ in range(int(n))) for n in torch.randint(1, 4, (400,), generator=draw)] + [
        "é",
        "a!",
    ]
    index = Terms(terms)
    lines = [" ".join(word(9) for _ in range(40)) for _ in range(20)] + ["", "été, a!", terms[0]]
    for line in lines:
        assert index.in_text(line) == [i for i, term in enumerate(terms) if occurs(term, line)]
    calls = 0
    symbols = automaton._symbols

    def counted(phrase: str) -> list[int]:
        nonlocal calls
        calls += 1
        return symbols(phrase)

    monkeypatch.setattr(automaton, "_symbols", counted)
    index.in_text(lines[0])
    assert calls == 1, "the work of a line does not grow with the number of terms"
