"""State carried from window to window, and what regularises the AWD-LSTM."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy

from regard import fit
from regard import recipe as recipes
from regard.data.batches import Batches
from regard.data.store import Store, Stream, fingerprint
from regard.errors import Interrupted, ModelError, RecipeError
from regard.language.fill import embed
from regard.language.generate import generate, stream
from regard.language.measure import perplexities
from regard.language.open import open_bundle
from regard.language.rnn import LockedDropout, RNNConfig
from regard.settings import Filters
from regard.text import END, Tokenizer, write_lines
from regard.train import OBJECTIVES, Options, Step, TrainConfig, Trainer, inputs
from regard.train.parallel import Parallel
from regard.train.regularizers import terms_of

CPU = torch.device("cpu")
LINES = [" ".join(random.Random(seed).choices("abcdefghij", k=seed % 9)) for seed in range(90)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d e f g h i j"], size=100, kind="words")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    keep = Filters(drop_empty=False, max_ratio=1e9)
    path = tmp_path_factory.mktemp("text") / "store"
    return Store.build(path, (("", line) for line in LINES), tokenizer, tokenizer, keep, fingerprint("carried"))


def batches(text: Store, layout: Any = "padded", tokens: int = 30) -> Batches:
    return Batches(text, batch_tokens=tokens, layout=layout, seed=4, pool=7, stream=Stream(6, carry=True))


def model(tokenizer: Tokenizer, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    config = RNNConfig(**{"width": 16, "embedding": 16, "dropout": 0.0, "carry": True, **options})
    return toy.make(config, vocabulary=len(tokenizer), dtype=dtype)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_each_row_goes_on_where_the_same_row_before_it_ended(text: Store, layout: Any) -> None:
    """Five rows of 6 tokens; the text is not a multiple of either, so that the last batch has fewer."""
    going, rows = batches(text, layout), []
    for epoch in range(2):
        seen, lanes = 0, []
        while going.epoch == epoch:
            batch = next(going)
            assert batch.continues == bool(lanes)
            ends = np.cumsum(batch.target_lengths)[:-1]
            flat = batch.target_output, batch.target_input
            read, fed = (
                [row[:n].tolist() for row, n in zip(x, batch.target_lengths, strict=True)]
                if layout == "padded"
                else [row.tolist() for row in np.split(x, ends)]
                for x in flat
            )
            for lane, row in enumerate(read):
                if batch.continues:
                    assert fed[lane][0] == lanes[lane][-1]
                    lanes[lane] += row
                else:
                    lanes.append(list(row))
            seen += batch.target_tokens
        assert seen == sum(len(line.split()) + 1 for line in LINES)
        assert len(lanes) == 5
        rows.append([token for lane in lanes for token in lane])
    assert rows[0] != rows[1], "another epoch begins elsewhere"
    assert sorted(rows[0]) == sorted(rows[1])
    straight = batches(text, layout)
    for _ in range(9):
        next(straight)
    other = batches(text, layout)
    other.seek(straight.position())
    again, wanted = next(other), next(straight)
    assert again.continues
    assert np.array_equal(again.target_output, wanted.target_output)


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_windows_give_what_one_long_pass_gives(text: Store, tokenizer: Tokenizer, layout: Any, cell: str) -> None:
    made = model(tokenizer, cell=cell)
    step = Step(made, 0.0, 50, objective=OBJECTIVES["language-model"], carry=True)
    found, lanes, firsts = 0.0, [[] for _ in range(5)], []
    for batch in batches(text, layout).one_epoch(sort=True):
        with torch.no_grad():
            found += float(step(inputs(batch, CPU, positions=0)))
        ends = np.cumsum(batch.target_lengths)[:-1]
        rows = batch.target_output if layout == "padded" else np.split(batch.target_output, ends)
        fed = batch.target_input if layout == "padded" else np.split(batch.target_input, ends)
        if not batch.continues:
            firsts = [int(row[0]) for row in fed]
        for lane, (row, n) in enumerate(zip(rows, batch.target_lengths, strict=True)):
            lanes[lane] += row[:n].tolist()
    wanted = 0.0
    for first, lane in zip(firsts, lanes, strict=True):
        ids, after = torch.tensor([[first, *lane[:-1]]]), torch.tensor(lane)
        hidden, _ = made.decode(ids, made.start())
        wanted += float(torch.nn.functional.cross_entropy(made.project(hidden[0]), after, reduction="sum").detach())
    assert found == pytest.approx(wanted, rel=1e-6)  # cells and states are packed in float32 at least


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_run_cut_between_two_windows_goes_on_exactly(
    text: Store, tokenizer: Tokenizer, tmp_path: Path, cell: str, precision: Any
) -> None:
    config = TrainConfig(max_updates=40, save_every=100, log_every=1, precision=precision, average="none", warmup=2)

    def trainer(out: Path, stop_after: int = 0) -> Trainer:
        def hear(event: dict[str, Any]) -> None:
            made.stop = event["update"] == stop_after

        learner = model(tokenizer, torch.float32, cell=cell, locked=True, dropout=0.2, weight_dropout=0.2)
        options = Options(report=hear, loops=True, carry=True)
        aim = OBJECTIVES["language-model"]
        made = Trainer(learner, batches(text), config, out, seed=1, width=16, objective=aim, options=options)
        return made

    whole = trainer(tmp_path / "whole")
    whole.run()
    for stop in (9, 17):  # in the first epoch, and behind its end
        with pytest.raises(Interrupted):
            trainer(tmp_path / str(stop), stop_after=stop).run()
        again = trainer(tmp_path / str(stop))
        assert again.resume() is not None
        assert again.bare.carried is not None
        assert again.bare.carried.data_ptr() % 64 == 0, "else products of float32 would round otherwise"
        again.run()
        for name, value in whole.parameters.items():
            assert torch.equal(value, again.parameters[name]), name


def test_several_processes_are_refused(text: Store, tokenizer: Tokenizer, tmp_path: Path) -> None:
    class Two(Parallel):
        alone = False

    options = Options(carry=True, parallel=Two())
    with pytest.raises(ModelError, match=r"model\.carry"):
        Trainer(
            model(tokenizer), batches(text), TrainConfig(), tmp_path, seed=1, width=16,
            objective=OBJECTIVES["language-model"], options=options,
        )  # fmt: skip


def test_a_batch_that_does_not_fit_is_not_cut(
    text: Store, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(carry=True, loops=True)
    config = TrainConfig(max_updates=2, precision="float32", average="none")
    aim = OBJECTIVES["language-model"]
    made = Trainer(
        model(tokenizer, torch.float32), batches(text), config, tmp_path, seed=1, width=16, objective=aim,
        options=options,
    )  # fmt: skip
    monkeypatch.setattr(made, "_attempt", lambda batch, part: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(ModelError, match=r"lower data\.batch_tokens"):
        made.run()


def recipe(folder: Path, **changes: Any) -> dict[str, Any]:
    """A stream that counts round and round to 9, of which a window of 4 shows less than half."""
    lines = ["0 1 2 3 4", "5 6 7 8 9"] * 150
    write_lines(folder / "train", lines)
    write_lines(folder / "valid", lines[:20])
    data = {"text": str(folder / "train"), "valid_text": str(folder / "valid"), "context": 4, "batch_tokens": 32}
    model = {"family": "rnn-lm", "width": 32, "embedding": 32, "layers": 1, "dropout": 0.0, "carry": True}
    train = {"max_updates": 150, "learning_rate": 1e-2, "schedule": "constant", "warmup": 10, "average": "none"}
    train |= {"label_smoothing": 0.0, "precision": "float32", "validate_every": 1000, "save_every": 1000}
    tables = {"data": data, "text": {"kind": "words"}, "model": model, "train": train, "search": {"beam": 1}}
    return {name: {**table, **changes.get(name, {})} for name, table in tables.items()}


@pytest.mark.parametrize("shape", [{}, {"width": 48, "embedding": 24, "layers": 2, "tied": True, "init_range": 0.2}])
def test_a_stream_is_measured_and_continued_as_a_whole(tmp_path: Path, shape: dict[str, Any]) -> None:
    """Lines of the same word: how often it came is known from further back than any window reaches."""
    made = fit(recipes.validate(recipe(tmp_path, model=shape)), tmp_path / "run")
    opened = open_bundle(made, ["language-model"])
    lines = ["0 1 2 3 4", "5 6 7 8 9", "0 1 2 3 4"]
    stream = [END]
    for line in lines:
        stream += [*opened.encode(line, 1), END]
    exact: Any = opened.model_for("exact")
    with torch.inference_mode():
        hidden, _ = exact.decode(torch.tensor([stream[:-1]]), exact.start())
        after = torch.tensor(stream[1:])
        nats = float(torch.nn.functional.cross_entropy(exact.project(hidden[0]), after))
    found = perplexities(opened, lines, precision="exact", batch_size=8)
    assert found["token"].value == pytest.approx(math.exp(nats), rel=1e-9)
    assert found["token"].value < 1.5
    with pytest.raises(ModelError, match="leave stride out"):
        perplexities(opened, lines, stride=2)
    (made_up,) = generate(opened, "5 6 7 8 9\n0 1 2 3 4\n5 6 7", search={"beam": 1, "max_length": 2})
    assert made_up.text.split() == ["8", "9"]
    assert embed(opened, lines).shape == (3, opened.recipe.model.embedding), "a tied model's last layer is that wide"


def test_it_needs_a_stream_and_a_family_that_can(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"set data\.context"):
        recipes.validate(recipe(tmp_path, data={"context": 0}))
    with pytest.raises(RecipeError, match="carry"):
        recipes.validate({"data": {"text": "a", "context": 4}, "model": {"family": "gpt", "carry": True}})


def test_locked_dropout_drops_the_same_features_at_every_position() -> None:
    drop = LockedDropout(0.5)
    found = drop(torch.ones(50, 40, 60))
    assert torch.equal(found, found[:1].expand_as(found))
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < float((found == 0).float().mean()) < 0.6
    assert len(found[0].unique(dim=0)) == 40, "each row has its own"
    assert torch.equal(drop.eval()(torch.ones(2, 2, 2)), torch.ones(2, 2, 2))


def test_words_and_recurrent_weights_are_dropped_for_a_whole_pass(tokenizer: Tokenizer) -> None:
    made = model(tokenizer, torch.float32, embedding_dropout=0.5)
    made.table.weight.data.fill_(1.0)
    seen: list[torch.Tensor] = []
    made.layers.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    tokens = torch.randint(4, len(tokenizer), (8, 30))
    made.train().decode(tokens, made.start())
    kept = {int(token): float(x) for token, x in zip(tokens.t().flatten(), seen[0].flatten(0, 1)[:, 0], strict=True)}
    whole = torch.tensor([kept[int(token)] for token in tokens.t().flatten()])
    assert torch.equal(seen[0], whole.view(30, 8, 1).expand(30, 8, 16)), "a word is dropped wherever it stands"
    assert set(kept.values()) == {0.0, 2.0}
    made.eval().decode(tokens, made.start())
    assert torch.equal(seen[1], torch.ones(30, 8, 16))
    layer = model(tokenizer, torch.float32, weight_dropout=0.5).layers.forwards[1].train()
    dropped = layer.recurrent()
    assert 0.4 < float((dropped == 0).float().mean()) < 0.6
    left = dropped != 0
    assert torch.equal(dropped[left], 2 * layer.hidden.weight[left])
    assert layer.eval().recurrent() is layer.hidden.weight or torch.equal(layer.recurrent(), layer.hidden.weight)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_activations_and_their_changes_are_held_small(text: Store, tokenizer: Tokenizer, layout: Any) -> None:
    """The gradient is that of the loss with what Merity et al. 2017 add; the loss that is told is the model's own."""
    sizes = {"activation": 2.0, "activation-change": 1.0}
    made = model(tokenizer)
    aim = OBJECTIVES["language-model"]
    batch = next(Batches(text, batch_tokens=61, layout=layout, seed=4, stream=Stream(7)))
    terms = terms_of(sizes, None, CPU)
    told = Step(made, 0.0, 50, objective=aim, terms=terms).train()(inputs(batch, CPU))
    told.backward()
    ours = {name: p.grad.clone() for name, p in made.named_parameters()}
    made.zero_grad()
    added, loss = [], []
    ends = np.cumsum(batch.target_lengths)[:-1]
    split = (lambda x: x) if layout == "padded" else (lambda x: np.split(x, ends))
    for fed, after, n in zip(
        split(batch.target_input), split(batch.target_output), batch.target_lengths.tolist(), strict=True
    ):
        (h,) = made.decode(torch.from_numpy(fed[:n])[None], made.start())[0]
        loss.append(torch.nn.functional.cross_entropy(made.project(h), torch.from_numpy(after[:n]), reduction="sum"))
        added += [2.0 * (h[t] ** 2).mean() for t in range(n)]
        added += [((h[t] - h[t - 1]) ** 2).mean() for t in range(1, n)]
    assert float(told.detach()) == pytest.approx(float(sum(loss).detach()), rel=1e-9)
    (sum(loss) + sum(added)).backward()
    for name, parameter in made.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, msg=name, rtol=1e-6, atol=1e-6)


def test_what_follows_a_prompt_is_parted_from_it(tmp_path: Path) -> None:
    """A word comes after a space, and after none where the prompt ends with one or with its line."""
    opened = open_bundle(fit(recipes.validate(recipe(tmp_path)), tmp_path / "run"), ["language-model"])
    for prompt, wanted in (("5 6 7", " 8 9"), ("5 6 7 ", "8 9"), ("5 6 7 8 9\n", "0 1")):
        (made_up,) = generate(opened, f"0 1 2 3 4\n{prompt}", search={"beam": 1, "max_length": 2})
        assert made_up.text == wanted
        assert "".join(stream(opened, f"0 1 2 3 4\n{prompt}", search={"beam": 1, "max_length": 2})) == wanted
