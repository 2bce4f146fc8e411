"""What computes for a translator: its model in PyTorch, or compiled, in the precision that was asked for.

precision   with the compiled engine       else, in PyTorch
auto        as float32; as int8, where     as exact
            weights are stored so
exact       never                          float32 weights multiplied in float64
float32     products in float32            float32; a sentence's last bits may then depend on its neighbours
bfloat16    products in bfloat16           bfloat16; likewise
int8        products in int8               as exact, for PyTorch has none

In the engine a row's numbers come from that row alone, so no precision depends on the batch. PyTorch's libraries take
other kernels for other numbers of rows and other alignments, so in float32 the last bits of a score change with the
batch, and now and then two hypotheses change places. What is left of the differences in float64 is about 1e-15 of a
score, where hypotheses that close do not occur in practice.
"""

from __future__ import annotations

import copy
import os
import shlex
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from regard.bundle import Bundle
from regard.bundle import load as load_bundle
from regard.errors import NO_TORCH, BundleError, ModelError, RegardWarning
from regard.models import FAMILIES
from regard.models.interface import EncoderDecoder, HasParameters, Kind
from regard.recipe import Recipe
from regard.search.hypotheses import Hypothesis
from regard.search.table import PRECISIONS, SEARCHES, SearchConfig, check_found, penalty_of, search_of
from regard.text.shortlist import Shortlist
from regard.text.tokenizer import BEGIN, END, MASK, Tokenizer

if TYPE_CHECKING:
    import torch

    from regard.bundle.load import Weights
    from regard.engine.decoding import Decoder

Model = TypeVar("Model", bound=HasParameters)
T = TypeVar("T")
Ids = Sequence[int]
_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "C:/Windows/System32/nvcuda.dll")
"""What is there where a GPU may be: on Linux, under Windows' Linux, AMD's, on Windows."""


class Use(NamedTuple):
    """What a model of one kind is for."""

    does: str
    command: str
    page: str
    """The module whose `answers` verify a bundle, and whose `judge` scores it by predictions, where those count."""


_TRANSLATES = Use("translates", "translate", "regard.tasks.decode")
_ONE_SIDE = "regard.language.answers"
USES: dict[Kind, Use] = {
    "encoder-decoder": _TRANSLATES,
    "mask-predictor": _TRANSLATES,
    "language-model": Use("is a language model", "generate", _ONE_SIDE),
    "reader": Use("is a masked language model", "fill", _ONE_SIDE),
    "classifier": Use("is a classifier", "classify", _ONE_SIDE),
}


@dataclass(frozen=True)
class Backend:
    """What computes one search: models in PyTorch, or decoders compiled of them; several are an ensemble.

    `bfloat16`: PyTorch multiplies in it. `mask`: of a mask-predictor, the id that it writes over.
    """

    models: Sequence[EncoderDecoder] = ()
    decoders: Sequence[Decoder] = ()
    bfloat16: bool = False
    mask: int | None = None

    @property
    def precision(self) -> str:
        """What products are computed in."""
        if self.decoders:
            return self.decoders[0].precision
        return "bfloat16" if self.bfloat16 else str(parameter_of(self.models[0]).dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device | str:
        """Where it computes."""
        return "cpu" if self.decoders else parameter_of(self.models[0]).device

    @property
    def capacities(self) -> list[int | None]:
        """The most tokens that each model takes."""
        if self.decoders:
            return [each.capacity for each in self.decoders]
        from regard.models.blocks import capacity_of

        models: Sequence[Any] = self.models  # they are modules, which the protocol does not say
        return [capacity_of(each) for each in models]

    def autocast(self) -> torch.autocast:
        """The context in which a float32 model's products run in bfloat16, where that was asked for."""
        import torch

        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.bfloat16)

    def quietly(self, function: T) -> T:
        """A function of PyTorch's, in this precision and without what gradients would need."""
        import torch

        quiet: T = torch.inference_mode()(self.autocast()(function))
        return quiet

    def searches(self, search: SearchConfig, *, n_best: int = 1, constrained: bool = False) -> bool:
        """Whether the whole search is inside of the compiled decoder.

        Raises ModelError for settings that do not go together. `constrained`: whether there are phrases to keep.
        """
        chosen = search_of(search, step_by_step=self.mask is None, n_best=n_best, constrained=constrained)
        return chosen.compiled and len(self.decoders) == 1 and not constrained and not search.coverage

    def found(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        *,
        n_best: int = 1,
        lines: Sequence[int] = (),
        shortlist: Shortlist | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` best hypotheses of each source, best first, by a search that is inside; see `searches`.

        Raises ModelError, by the number of the source in `lines`, for rules that cannot be kept.
        """
        from regard.engine.decoding import Beam

        [decoder] = self.decoders
        limits = limits_of(sources, search, [decoder.capacity])
        for limit, line in zip(limits, lines, strict=False):
            if search.min_length > limit:
                rule = f"at least {search.min_length} tokens are asked for, and at most {limit} allowed"
                raise ModelError(f"line {line}: {rule}; change one of the two.")
        greedy = search_of(search, n_best=n_best) is SEARCHES["greedy"]
        width, stop = (1, "first") if greedy else (max(search.beam, n_best), search.stop)
        penalty, rules = penalty_of(search.penalty, search.alpha), (search.min_length, search.no_repeat_ngram_size)
        beam = Beam(width, n_best, search.batch_size, stop, BEGIN, END, penalty, *rules)
        # Longest first, so that those decoded together are of near the same length, and memory shows early.
        order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), i))
        rows, most = [[*sources[i], END] for i in order], [limits[i] for i in order]
        lists = None if shortlist is None else [shortlist.of(sources[i]) for i in order]
        found = decoder.search(rows, most, beam, lists, progress)
        made: list[list[Hypothesis]] = [[] for _ in sources]
        for i, hypotheses in zip(order, found, strict=True):
            made[i] = [Hypothesis(*each) for each in hypotheses]
            check_found(made[i], lines[i] if lines else i + 1)
        return made


def limits_of(sources: Sequence[Ids], search: SearchConfig, capacities: Sequence[int | None]) -> list[int]:
    """The longest output of each source, its end counted: what the search allows, and what the models have room for.

    A decoder reads the begin and all but the last of what it writes, so it needs a position for each token it writes.
    """
    most = min(filter(None, (search.max_length, *capacities)), default=None)
    found = [len(source) + search.extra_length for source in sources]
    return found if most is None else [min(limit, most) for limit in found]


def mask_of(recipe: Recipe, target: Tokenizer) -> int | None:
    """The id of the mask that a mask-predictor writes over; None for every other model."""
    return None if FAMILIES[recipe.model.family].step_by_step else target.id_of(MASK)


def is_exact(precision: str) -> bool:
    """Whether PyTorch multiplies in float64 for this precision. Raises ModelError for a name that there is not."""
    if precision not in PRECISIONS:
        raise ModelError(f"precision = {precision!r}: must be one of {', '.join(PRECISIONS)}.")
    return precision not in ("float32", "bfloat16")


def exact_copy(model: Model) -> Model:
    """The model as it computes in float64: a copy; itself, if it does already."""
    if str(parameter_of(model).dtype) == "torch.float64":
        return model
    copied: Any = copy.deepcopy(model)  # a module, whatever else its kind is
    exact: Model = copied.double()
    return exact


def parameter_of(model: HasParameters) -> torch.Tensor:
    """One of a model's parameters, which shows where it lies and in what numbers."""
    return next(iter(model.named_parameters()))[1]


def backend_of(
    model: EncoderDecoder | Sequence[EncoderDecoder], precision: str = "auto", mask: int | None = None
) -> Backend:
    """Models in PyTorch, in this precision; a mask-predictor with the id of its mask."""
    models = [*model] if isinstance(model, Sequence) else [model]
    if is_exact(precision):
        models = [exact_copy(each) for each in models]
    return Backend(models, bfloat16=precision == "bfloat16", mask=mask)


def placed(device: str) -> str:
    """The device of this name, "auto" being a GPU where there is one; PyTorch is asked only where there may be one."""
    if device == "cpu" or (device == "auto" and not (has_torch() and any(map(os.path.exists, _GPUS)))):
        return "cpu"
    check_torch(f"the device {device}")
    from regard.models.blocks import device_named

    return str(device_named(device))


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None


def check_torch(what: str) -> None:
    """Raises ModelError where PyTorch is not installed, which this needs."""
    if not has_torch():
        raise ModelError(NO_TORCH.format(what))


def context_of(recipe: Recipe) -> int:
    """The most tokens that a recipe's model takes at once, because it has learned no more positions; 0: no limit."""
    family = FAMILIES[recipe.model.family]
    window = 0 if recipe.carries else recipe.data.context
    return min(filter(None, (family.capacity(recipe.model), window)), default=0)


def check_kind(recipe: Recipe, wanted: Sequence[Kind], path: str | Path) -> None:
    """Raises ModelError, naming what to use instead, for a bundle of another kind."""
    kind = FAMILIES[recipe.model.family].kind
    if kind not in wanted:
        raise ModelError(f"{path}: this bundle {USES[kind].does}; use `regard {USES[kind].command}`.")


def reads_pairs(bundle: str | Path) -> bool:
    """Whether a bundle translates."""
    return USES[FAMILIES[load_bundle(bundle).recipe.model.family].kind].command == "translate"


def use_of(recipe: Recipe, bundle: str | Path) -> str:
    """The command that uses a bundle."""
    word = "parse" if recipe.data.trees else USES[FAMILIES[recipe.model.family].kind].command
    return shlex.join(["regard", *word.split(), str(bundle)])


class Engine:
    """A bundle's model in every precision that was asked for, each made once and kept. Safe from several threads.

    It is read from its bundle when something needs it; the compiled decoder takes the weights alone.
    """

    def __init__(
        self, recipe: Recipe, bundle: Bundle | None = None, model: EncoderDecoder | None = None, device: str = "cpu"
    ) -> None:
        """Of a bundle, or of a model that is there already."""
        self.device = device if model is None else str(parameter_of(model).device)
        """Where the model lies: cpu, or cuda with its number."""
        self._model, self._recipe, self._bundle = model, recipe, bundle
        self._stamp = None if bundle is None else stamp_of(bundle.path)
        self._exact: EncoderDecoder | None = None
        self._decoders: dict[str, Decoder] = {}
        self._kept: dict[str, Any] = {}
        self._lock = threading.RLock()

    @property
    def model(self) -> EncoderDecoder:
        """The model in PyTorch; BundleError if its bundle is another one by now."""
        with self._lock:
            if self._model is None:
                check_torch(self.refusal() or "what the compiled decoder does not do")
                found: Any = self._opened().model()
                self._model = found.to(self.device)
            assert self._model is not None
            return self._model

    def check(self) -> None:
        """Raises BundleError for weights of another model: by the file's header for the decoder, else by reading."""
        _ = self._weights() if self.refusal() is None else self.model

    def _opened(self) -> Bundle:
        assert self._bundle is not None
        if stamp_of(self._bundle.path) != self._stamp:
            found = load_bundle(self._bundle.path)
            if found.files != self._bundle.files:
                raise BundleError(f"{found.path}: is another bundle than the one that was opened; open it again.")
        return self._bundle

    def _weights(self) -> Weights:
        from regard.engine.packing import shapes_of

        bundle = self._opened()
        return bundle.weights(shapes_of(self._recipe.model, len(bundle.source), len(bundle.target)))

    def model_for(self, precision: str) -> EncoderDecoder:
        """The model to compute with in PyTorch: itself, or its copy in float64."""
        if not is_exact(precision):
            return self.model
        with self._lock:
            if self._exact is None:
                self._exact = exact_copy(self.model)
            return self._exact

    def forcing(self, precision: str) -> Backend:
        """What computes forced decoding in this precision: the compiled decoder where it can, else PyTorch."""
        if precision == "exact" or precision not in PRECISIONS or self.refusal():
            return Backend([self.model_for(precision)], bfloat16=precision == "bfloat16")
        return Backend(decoders=[self.decoder(precision)])

    def why_not_compiled(self, search: SearchConfig, others: Sequence[Engine] = ()) -> str | None:
        """Why a search, alone or as an ensemble, runs in PyTorch; None: the compiled engine does it."""
        if search.precision == "exact":
            return "precision = exact multiplies in float64, which the compiled engine does not"
        return next(filter(None, (each.refusal() for each in (self, *others))), None)

    def refusal(self) -> str | None:
        """Why the model is not compiled; None: it can be."""
        from regard.engine.packing import refuses

        return refuses(self._recipe.model, self.device)

    def decoder(self, precision: str) -> Decoder:
        """The model compiled in a precision; "auto" is what its weights are stored in, float32 at least."""
        if precision == "auto":
            stored = self._bundle.provenance.notes.get("quantized") if self._bundle else None
            precision = "int8" if stored == "int8" else "float32"
        with self._lock:
            if precision not in self._decoders:
                from regard.engine.packing import compiled, packed

                config, weights = self._recipe.model, None if self._bundle is None else self._weights()
                made = packed(weights, config, precision, weights.whole) if weights else None
                self._decoders[precision] = made or compiled(self.model, config, precision)
            return self._decoders[precision]

    def backend(self, search: SearchConfig, others: Sequence[Engine] = (), mask: int | None = None) -> Backend:
        """What computes a search, alone or as an ensemble."""
        members = (self, *others)
        if (reason := self.why_not_compiled(search, others)) is None:
            return Backend(decoders=[each.decoder(search.precision) for each in members])
        check_torch(f"{reason}, so it")
        bfloat16 = search.precision == "bfloat16"
        return Backend([each.model_for(search.precision) for each in members], bfloat16=bfloat16, mask=mask)

    def warn_once(self, sentence: str) -> None:
        """Warns, but not again of the same."""
        with self._lock:
            if sentence in self._kept:
                return
            self._kept[sentence] = True
        warnings.warn(sentence, RegardWarning, stacklevel=3)

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once under this name."""
        with self._lock:
            if name not in self._kept:
                self._kept[name] = make()
            kept: T = self._kept[name]
            return kept


def stamp_of(bundle: Path) -> tuple[int, ...] | None:
    """What tells cheaply that a bundle's directory is still the one that was opened and checked."""
    try:
        found = [at.stat() for at in (bundle, bundle / "weights.safetensors")]
    except OSError:
        return None
    return tuple(number for each in found for number in (each.st_ino, each.st_mtime_ns))


def instead_of(precision: str, reason: str) -> str:
    """What is done where the compiled engine cannot do what this precision asks for, in a sentence."""
    if precision == "int8":
        return f"precision int8 is not to be had here, and float64 is used instead: {reason}."
    return (
        f"precision {precision} is PyTorch's here, in which the last bits of a sentence's scores depend on what is "
        f"translated with it: {reason}."
    )
