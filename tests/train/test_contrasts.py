"""Contrasts that a recipe can name: right to left, frequent words damped, pooling without attention."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from regard import bundle as bundles
from regard import recipe as recipes
from regard.data.batches import Batches
from regard.data.store import Store, Stream, fingerprint
from regard.errors import BundleError, ModelError, RecipeError
from regard.exchange.export import export
from regard.language.gpt import GPTConfig
from regard.language.self_attentive import SelfAttentiveConfig
from regard.linking.align import align_lines
from regard.models.transformer import TransformerConfig
from regard.nn.layers import only_references
from regard.nn.state import Observer
from regard.parsing.parse import parse
from regard.settings import Filters
from regard.tasks.fit import fit
from regard.tasks.forced import score_lines
from regard.tasks.translate import Translator, load
from regard.terminology.constraints import Constraints
from regard.text import END, Tokenizer, write_lines
from regard.train import OBJECTIVES, TrainConfig, Trainer, inputs, label_smoothed, projected_loss
from regard.train.regularizers import token_weights

LINES = [" ".join(random.Random(n).choices("abcdef", k=1 + n % 6)) for n in range(80)]


def _recipe(folder: Path, target: list[str], order: str, **train: Any) -> recipes.Recipe:
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "a", LINES)
    write_lines(folder / "b", target)
    return recipes.validate(
        {
            "data": {"source": str(folder / "a"), "target": str(folder / "b"), "valid_lines": 8, "batch_tokens": 300},
            "text": {"kind": "words", "joint": True, "order": order},
            "model": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
            "train": {"max_updates": 3, "warmup": 1, "learning_rate": 0.02, "schedule": "constant",
                      "precision": "float32",
                      "average": "none", "save_every": 100, **train},
            "search": {"beam": 2, "max_length": 7},
        }
    )  # fmt: skip


# -- right to left -----------------------------------------------------------------------------------------------------


def test_ids_are_turned_and_text_is_not() -> None:
    forwards = Tokenizer.train(["ein Haus am See, größer als 10 Boote", *LINES], size=330, shrink=True)
    backwards = forwards.in_order("right-to-left")
    assert forwards.in_order("left-to-right") is forwards
    assert backwards.in_order("left-to-right").digest == forwards.digest != backwards.digest
    for line in ("ein Haus", "größer 東京", "", " a  b "):
        ids = backwards.encode(line)
        assert ids == forwards.encode(line)[::-1]
        assert backwards.decode(ids) == backwards.decode([*ids, END]) == line
        assert backwards.encode_lines([line]) == [ids]
        assert backwards.spans(line) == forwards.spans(line)[::-1]
        assert backwards.spans_of(ids) == forwards.spans_of(ids[::-1])[::-1]
        assert backwards.sample(line, alpha=0.1, seed=3) == forwards.sample(line, alpha=0.1, seed=3)[::-1]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Translator, Translator]:
    """One trained from right to left, and one from left to right on the same words turned round."""
    folder = tmp_path_factory.mktemp("orders")
    ours = fit(_recipe(folder / "ours", LINES, "right-to-left"), folder / "ours" / "run")
    turned = [" ".join(line.split()[::-1]) for line in LINES]
    theirs = fit(_recipe(folder / "theirs", turned, "left-to-right"), folder / "theirs" / "run")
    return load(ours), load(theirs)


def test_right_to_left_is_left_to_right_on_words_turned_round(pair: tuple[Translator, Translator]) -> None:
    ours, theirs = pair
    for (name, a), (_, b) in zip(ours.model.named_parameters(), theirs.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert ours.target.order == "right-to-left"
    asked: Any = {"attention": True, "confidence": True, "alignment": True, "search": {"min_length": 3}}
    one, other = (translator.translate(LINES[:6], **asked) for translator in pair)
    assert all(len(found.text.split()) >= 3 for found in one)
    for a, b in zip(one, other, strict=True):
        assert a.text.split() == b.text.split()[::-1]
        assert a.log_probability == b.log_probability
        assert a.target_tokens == b.target_tokens, "in the order in which they were written"
        assert a.attention is not None
        assert b.attention is not None
        assert np.array_equal(a.attention, b.attention)
        assert a.words is not None
        assert b.words is not None
        assert [w.text for w in a.words] == [w.text for w in b.words][::-1]
        assert [w.confidence for w in a.words] == [w.confidence for w in b.words][::-1]
        last = len(a.words) - 1
        assert a.alignment is not None
        assert b.alignment is not None
        assert {(x.source, x.target) for x in a.alignment} == {(x.source, last - x.target) for x in b.alignment}


def test_scores_and_links_are_of_the_same_words(pair: tuple[Translator, Translator]) -> None:
    ours, theirs = pair
    targets, turned = ["a b c", "d e"], ["c b a", "e d"]
    one, other = score_lines(ours, LINES[:2], targets), score_lines(theirs, LINES[:2], turned)
    assert [s.log_probability for s in one] == [s.log_probability for s in other]
    links, theirs_links = align_lines(ours, LINES[:2], targets), align_lines(theirs, LINES[:2], turned)
    for mine, its, words in zip(links, theirs_links, (3, 2), strict=True):
        assert set(mine.links) == {(i, words - 1 - j) for i, j in its.links}


def test_what_works_from_left_to_right_is_refused(pair: tuple[Translator, Translator], tmp_path: Path) -> None:
    ours, theirs = pair
    assert ours.bundle is not None
    place = ours.bundle.path
    with pytest.raises(ModelError, match="shown from its beginning"):
        next(ours.stream(LINES[0]))
    with pytest.raises(ModelError, match=r"from left to right, and this bundle writes from right to left"):
        ours.translate(LINES[:1], constraints=Constraints(include=("a",)))
    with pytest.raises(ModelError, match="brackets"):
        parse(ours, LINES[:1])
    with pytest.raises(ModelError, match="can be exported"):
        export(place, "huggingface", tmp_path / "out", verify=False)
    with pytest.raises(ModelError, match="another target vocabulary"):
        ours.ensemble_with([theirs])
    with pytest.raises(RecipeError, match=r"text\.order = 'right-to-left' is for train\.objective = 'translate'"):
        recipes.validate(
            {"data": {"text": "a"}, "text": {"order": "right-to-left"}, "model": {"family": "gpt", "heads": 2}}
        )


def test_the_bundle_verifies_and_names_its_order(pair: tuple[Translator, Translator]) -> None:
    assert pair[0].bundle is not None
    found = bundles.load(pair[0].bundle.path)
    assert found.recipe.text.order == "right-to-left"
    assert found.source.order == "left-to-right"
    with pytest.raises(BundleError):
        bundles.load(pair[0].bundle.path / "nowhere")


# -- frequent words ----------------------------------------------------------------------------------------------------


def test_what_is_frequent_counts_less_and_the_corpus_one_on_average() -> None:
    counts = torch.tensor([0, 0, 0, 50, 100, 800, 50])
    found = token_weights(counts, 0.1)
    share = counts / counts.sum()
    assert float((share * found).sum()) == pytest.approx(1.0)
    assert found[5] < found[4] < found[3]
    assert float(found[3] / found[5]) == pytest.approx((0.1 + 0.8) / (0.1 + 0.05))
    torch.testing.assert_close(token_weights(counts, 1e6), torch.ones(7), rtol=1e-4, atol=0)


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "native"])
@pytest.mark.parametrize("chunk", [4, 100])
def test_a_weighted_loss_is_the_weighted_sum_with_its_gradient(chunk: int, compiled: bool) -> None:
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(9, 8), torch.randn(30, 8), torch.randn(30)
    targets, counts = torch.tensor([3, 4, -1, 5, 3, -1, 6, 7, 9]), torch.rand(9) + 0.1
    leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    with nullcontext() if compiled else only_references():
        loss = projected_loss(*leaves, targets, 0.1, chunk, token_weights=counts)
        loss.backward()  # type: ignore[no-untyped-call]
    exact = [x.double().requires_grad_() for x in (hidden, weight, bias)]
    logits = F.linear(*exact)
    each = torch.stack([label_smoothed(row[None], t[None], 0.1) for row, t in zip(logits, targets, strict=True)])
    (each * counts).sum().backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(float((each.detach() * counts).sum()), rel=1e-5)
    for made, right in zip(leaves, exact, strict=True):
        torch.testing.assert_close(made.grad.double(), right.grad, rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]
    with torch.no_grad():
        again = projected_loss(hidden, weight, bias, targets, 0.1, chunk, token_weights=counts)
    assert float(again) == pytest.approx(float(loss.detach()), rel=1e-5)


def test_a_store_counts_its_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a b c"], size=20, kind="words")
    store = Store.build(tmp_path / "s", iter([("a", "b b c"), ("c", "b")]), tokenizer, tokenizer,
                        Filters(max_ratio=9.0), fingerprint("s"))  # fmt: skip
    counts = store.target.counts(len(tokenizer))
    assert {tokenizer.tokens([i])[0]: int(n) for i, n in enumerate(counts) if n} == {"▁b": 3, "▁c": 1, "</s>": 2}


def test_token_weights_are_a_key_of_a_recipe_and_dev_loss_is_not_weighted(tmp_path: Path) -> None:
    found = {}
    for damping in (0.0, 1e9, 0.01):
        events: list[dict[str, Any]] = []
        recipe = _recipe(
            tmp_path / str(damping),
            LINES,
            "left-to-right",
            regularizers={"token-weights": damping},
            learning_rate=1e-9,
            log_every=1,
        )
        fit(recipe, tmp_path / str(damping) / "run", callbacks=[events.append])
        found[damping] = [next(e["loss"] for e in events if e["event"] == kind) for kind in ("train", "validate")]
    assert found[1e9] == pytest.approx(found[0.0], rel=1e-4)
    assert found[0.01][0] != pytest.approx(found[0.0][0], rel=1e-4)
    assert found[0.01][1] == pytest.approx(found[0.0][1], rel=1e-4)


# -- pooling, and one length -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["mean", "end"])
def test_a_reader_without_attention_sees_no_padding_and_has_no_hops(pool: Any) -> None:
    config = SelfAttentiveConfig(width=16, embedding=10, pool=pool, hidden=12, dropout=0.0)
    model: Any = toy.make(config, dtype=torch.float64)
    assert not any(name.startswith("hops") for name, _ in model.named_parameters())

    def classes(rows: list[list[int]], lay: Any) -> torch.Tensor:
        found: torch.Tensor = model.project(model.classify(*lay(rows)))
        return found

    ensemble_with = classes(toy.SOURCES, toy.padded)
    torch.testing.assert_close(classes(toy.SOURCES, toy.packed), ensemble_with)
    for i, row in enumerate(toy.SOURCES):
        torch.testing.assert_close(classes([row], toy.padded)[0], ensemble_with[i])
    if pool == "mean":
        x = model.encoder(model.table(torch.tensor([toy.SOURCES[0]]).T), lengths=torch.tensor([4]))[0]
        torch.testing.assert_close(model.embed(*toy.padded([toy.SOURCES[0]]))[0, 0], x.mean(0)[0])


def test_mean_pooling_in_place_of_attention_looks_everywhere_alike() -> None:
    model: Any = toy.make(TransformerConfig(width=16, heads=2, encoder_layers=1, decoder_layers=1, score="mean"))
    observe = Observer("cross")
    source, layout = toy.padded(toy.SOURCES)
    target, writing = toy.padded(toy.TARGETS)
    model.decode(target, model.start(model.encode(source, layout), layout), writing, observe)
    for row, tokens in zip(observe.weights["cross"][0], toy.SOURCES, strict=True):
        torch.testing.assert_close(row[..., : len(tokens)], torch.full_like(row[..., : len(tokens)], 1 / len(tokens)))


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_windows_as_wide_as_the_learned_places_train_whatever_their_number(layout: Any, tmp_path: Path) -> None:
    """Rectangles are filled up to a multiple of 4 columns, and must not ask for places that a model has not learnt."""
    tokenizer = Tokenizer.train(LINES, size=100, kind="words")
    pairs = (("", line) for line in LINES)
    store = Store.build(tmp_path / "s", pairs, tokenizer, tokenizer, Filters(drop_empty=False, max_ratio=9e9), "f")
    torch.manual_seed(0)
    model: Any = toy.make(GPTConfig(width=16, heads=2, layers=1, max_positions=7, dropout=0.0), len(tokenizer))  # type: ignore[arg-type]
    batches = Batches(store, batch_tokens=60, layout=layout, stream=Stream(7))
    config = TrainConfig(max_updates=2, warmup=1, precision="float32", average="none")
    aim = OBJECTIVES["language-model"]
    trainer = Trainer(model.train(), batches, config, tmp_path / "run", seed=1, width=16, objective=aim)
    trainer.run()
    assert trainer.positions == 7
    made = inputs(
        next(Batches(store, batch_tokens=60, layout=layout, stream=Stream(7))), torch.device("cpu"), positions=7
    )
    assert made.widths[1] == 7
    assert made.tokens.shape[-1] == 7 or layout == "packed"
