"""What the compiled decoder is handed is checked before it is used, and its bits depend on no thread that is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import toy

from regard.engine import decoding
from regard.engine.decoding import Beam, Decoder
from regard.engine.packing import compiled
from regard.engine.steps import StepState, start
from regard.errors import KernelError, ModelError
from regard.models.transformer import TransformerConfig
from regard.search.table import SearchConfig
from regard.tasks.decode import decode, decode_steps
from regard.tasks.engine import backend_of
from regard.text import BEGIN, END

needs_compiler = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))
SMALL = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=2, decoder_layers=2, dropout=0.0)
VOCABULARY = 90
BEAM = {"width": 2, "n_best": 1, "batch": 2, "stop": "bound", "begin": BEGIN, "end": END, "penalty": float}


def search(decoder: Decoder, source: list[int], lists: list[list[int]] | None = None, **changes: object) -> object:
    listed = None if lists is None else [np.array(each, dtype=np.int32) for each in lists]
    return decoder.search([source], [8], Beam(**{**BEAM, **changes}), listed)  # type: ignore[arg-type]


@needs_compiler
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_ids_outside_of_the_tables_are_refused(precision):
    decoder = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, precision)
    assert search(decoder, [5, 6, END])
    for source in ([5, VOCABULARY, END], [-1, END], [2**30]):
        with pytest.raises(KernelError, match=r"source token .* is outside of the table of 90"):
            search(decoder, source)
    for listed in ([1, 3, 2**30], [-5], [VOCABULARY]):
        with pytest.raises(KernelError, match="of a list is outside of the vocabulary of 90"):
            search(decoder, [5, END], [listed])
    with pytest.raises(KernelError, match="row 0 of 1 ends at 0"):
        search(decoder, [5, END], [[]])
    for changes in ({"begin": VOCABULARY}, {"end": -1}):
        with pytest.raises(KernelError, match="is outside of the"):
            search(decoder, [5, END], None, **changes)


@needs_compiler
@pytest.mark.parametrize(
    "changes", [{"width": 2**57}, {"width": 2**30}, {"width": 0}, {"n_best": 2**40}, {"batch": 2**63}, {"batch": 2**64}]
)
def test_settings_beyond_all_bounds_are_refused(changes):
    decoder = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, "int8")
    with pytest.raises(KernelError, match=r"the search's \w+ is"):
        search(decoder, [5, END], None, **changes)


@needs_compiler
def test_a_step_is_given_rows_and_tokens_that_are_there():
    decoder = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, "float32")
    step, state = start(decoder, [[5, END], [6, 7, END]], 8)
    out, state = step(np.array([BEGIN, BEGIN]), state)
    assert out.shape == (2, VOCABULARY)
    with pytest.raises(KernelError, match="target token 90 is outside of the table of 90"):
        step(np.array([VOCABULARY, 5]), state)
    with pytest.raises(KernelError, match="row 0 was written by row 7 of position 0, which has 2"):
        step(np.array([5, 5]), StepState(state.sentences, state.trail + 7, state.blocks))
    with pytest.raises(KernelError, match="row 1 is of sentence 2, and there are 2"):
        step(np.array([5, 5]), StepState(np.array([0, 2]), state.trail, state.blocks))


@needs_compiler
def test_weights_of_another_shape_are_refused():
    model = toy.make(SMALL, vocabulary=VOCABULARY)
    model.decoder[1].feedforward.inner.weight = torch.nn.Parameter(torch.zeros(16, 16))
    with pytest.raises(KernelError, match="of tensors has 256 and 32 numbers, not 512 and 32"):
        compiled(model, SMALL, "float32")
    sizes = decoding.Shape(16, 2**40, 16, 16, 16, 1, 1, 90, 0, False, 16, False, (2**40,) * 3)
    with pytest.raises(KernelError, match="number of heads is 1099511627776"):
        Decoder(sizes, "float32", 1e-5, [], ())  # type: ignore[arg-type]


SEARCHES = {
    "beam": {"beam": 4},
    "greedy": {"beam": 1},
    "samples": {"samples": 2, "beam": 1},
    "groups": {"beam": 4, "groups": 2},
    "coverage": {"coverage": 0.2},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_weights_that_are_not_numbers_are_said_to_be(name):
    model = toy.make(SMALL, vocabulary=VOCABULARY)
    with torch.no_grad():
        model.encoder[0].feedforward.inner.weight.fill_(float("nan"))
    settings = SearchConfig(**{"extra_length": 4, **SEARCHES[name]})
    with pytest.raises(ModelError, match="no finite scores"):
        decode(model, [[5, 6], [7]], settings)
    if decoding.refusal() is None:
        for precision in decoding.PRECISIONS:
            with pytest.raises(ModelError, match="no finite scores"):
                compiled(model, SMALL, precision)
    if name in ("beam", "samples"):
        with pytest.raises(ModelError, match="no finite scores"):
            list(decode_steps(backend_of(model, "exact"), [5, 6], settings))


# -- threads -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, resource, signal, sys, torch, toy
from concurrent.futures import ThreadPoolExecutor
from regard.engine.decoding import Beam
from regard.engine.packing import compiled
from regard.errors import ModelError
from regard.models.transformer import TransformerConfig

config = TransformerConfig(width=32, heads=2, feedforward=32, encoder_layers=2, decoder_layers=2, dropout=0.0)
decoders = [compiled(toy.make(config, vocabulary=300), config, kind) for kind in ("float32", "int8")]

def found(decoder, apart=None, **changes):
    settings = dict(width=3, n_best=2, batch=2, stop="bound", begin=2, end=3, penalty=float)
    return decoder.search([[5, 6, 3], [7, 3], [8, 9, 10, 3]], [9, 9, 9], Beam(**{**settings, **changes}), apart=apart)

if sys.argv[1] == "bits":
    print(json.dumps([found(decoder, apart=False) for decoder in decoders]))
elif sys.argv[1] == "apart":
    print(json.dumps([found(decoder, apart=True) for decoder in decoders]))
elif sys.argv[1] == "fork":
    before = found(decoders[0])
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs must not stay
        os._exit(0 if found(decoders[0]) == before else 1)
    print(json.dumps(os.waitpid(child, 0)[1]))
elif sys.argv[1] == "at once":
    with ThreadPoolExecutor(8) as pool:  # they share the threads that there are
        print(json.dumps([list(pool.map(found, [decoder] * 40)) for decoder in decoders]))
else:
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        found(decoders[0], width=1 << 20)
    except ModelError as error:
        print(json.dumps(str(error)))
"""


def run(how: str, **environment: str) -> object:
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env={**os.environ, "PYTHONPATH": f"{tests.parent}:{tests}", "OMP_NUM_THREADS": "3", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@needs_compiler
def test_fewer_threads_than_asked_for_change_no_bit():
    expected = run("bits")
    assert isinstance(expected, list)
    assert run("apart") == expected
    assert run("at once") == [[each] * 40 for each in expected]


@needs_compiler
def test_it_works_in_a_forked_process():
    assert run("fork") == 0


@needs_compiler
def test_too_little_memory_is_said():
    assert "not enough memory for this search; lower search.beam or search.batch_size" in str(run("memory"))


@needs_compiler
def test_threads_that_search_apart_can_be_stopped(monkeypatch):
    monkeypatch.setattr(decoding, "default_threads", lambda: 2)
    decoder = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, "float32")
    sources, told = [[5, 6, 7, END]] * 40, list[int]()
    found = decoder.search(sources, [9] * 40, Beam(**BEAM), None, told.append, apart=True)  # type: ignore[arg-type]
    assert all(each == found[0] for each in found)
    assert max(told) == 40

    def stop(done: int) -> None:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        decoder.search(sources, [9] * 40, Beam(**BEAM), None, stop, apart=True)  # type: ignore[arg-type]
