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
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from regard.bundle import Bundle
from regard.bundle import load as load_bundle
from regard.errors import BundleError, ModelError, RegardWarning
from regard.models.interface import EncoderDecoder, HasParameters, capacity_of, device_of
from regard.search.config import PRECISIONS, SearchConfig

if TYPE_CHECKING:
    from regard.engine.decoding import Decoder

Model = TypeVar("Model", bound=HasParameters)
NO_INT8 = "this is computed in PyTorch, which multiplies no int8"


@dataclass(frozen=True)
class Backend:
    """What computes one search: models in PyTorch, or decoders compiled of them; several are an ensemble."""

    models: Sequence[EncoderDecoder] = ()
    decoders: Sequence[Decoder] = ()
    bfloat16: bool = False
    """Whether PyTorch multiplies in bfloat16."""
    mask: int | None = None
    """Of a mask-predictor, the id that it writes over."""

    @property
    def precision(self) -> str:
        """What products are computed in."""
        if self.decoders:
            return self.decoders[0].precision
        weights = next(iter(self.models[0].named_parameters()))[1]
        return "bfloat16" if self.bfloat16 else str(weights.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device("cpu") if self.decoders else device_of(self.models[0])

    @property
    def capacities(self) -> list[int | None]:
        """The most tokens that each model takes."""
        if self.decoders:
            return [each.capacity for each in self.decoders]
        models: Sequence[Any] = self.models  # they are modules, which the protocol does not say
        return [capacity_of(each) for each in models]

    def autocast(self) -> torch.autocast:
        """The context in which a float32 model's products run in bfloat16, where that was asked for."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)


def is_exact(precision: str) -> bool:
    """Whether PyTorch multiplies in float64 for this precision. Raises ModelError for a name that there is not."""
    if precision not in PRECISIONS:
        raise ModelError(f"precision = {precision!r}: must be one of {', '.join(PRECISIONS)}.")
    return precision not in ("float32", "bfloat16")


def exact_copy(model: Model) -> Model:
    """The model as it computes in float64: a copy; itself, if it does already."""
    if next(iter(model.named_parameters()))[1].dtype == torch.float64:
        return model
    copied: Any = copy.deepcopy(model)  # a module, whatever else its kind is
    exact: Model = copied.double()
    return exact


def backend_of(
    model: EncoderDecoder | Sequence[EncoderDecoder], precision: str = "auto", mask: int | None = None
) -> Backend:
    """Models in PyTorch, in this precision; a mask-predictor with the id of its mask."""
    models = [*model] if isinstance(model, Sequence) else [model]
    if is_exact(precision):
        models = [exact_copy(each) for each in models]
    return Backend(models, bfloat16=precision == "bfloat16", mask=mask)


class Engine:
    """A bundle's model in every precision that was asked for, each made once and kept. Safe from several threads."""

    def __init__(self, model: EncoderDecoder, config: Any, bundle: Bundle | None = None) -> None:
        """`config` is the recipe's [model]. The model of a bundle is put aside once it is compiled."""
        self._model: EncoderDecoder | None = model
        self._config, self._bundle = config, bundle
        self._exact: EncoderDecoder | None = None
        self._decoders: dict[str, Decoder] = {}
        self._kept: dict[str, Any] = {}
        self._lock = threading.RLock()

    @property
    def model(self) -> EncoderDecoder:
        """The model, read from the bundle again if it was put aside. BundleError if that is another bundle by now."""
        with self._lock:
            if self._model is None:
                assert self._bundle is not None
                found = load_bundle(self._bundle.path)
                if found.files != self._bundle.files:
                    raise BundleError(f"{found.path}: is another bundle than the one that was opened; open it again.")
                self._model = found.model()  # type: ignore[assignment]  # the family says that it is one
            assert self._model is not None
            return self._model

    @property
    def device(self) -> str:
        """Where the model lies: cpu, or cuda with its number."""
        model = self._model
        return "cpu" if model is None else str(device_of(model))

    def model_for(self, precision: str) -> EncoderDecoder:
        """The model to compute with in PyTorch: itself, or its copy in float64."""
        if not is_exact(precision):
            return self.model
        with self._lock:
            if self._exact is None:
                self._exact = exact_copy(self.model)
            return self._exact

    def reference(self, precision: str, mask: int | None = None) -> Backend:
        """The model in PyTorch, in this precision, whatever could be compiled; warns of int8, which PyTorch has not."""
        if precision == "int8":
            self.warn_once(instead_of(precision, NO_INT8))
        return Backend([self.model_for(precision)], bfloat16=precision == "bfloat16", mask=mask)

    def why_not_compiled(self, search: SearchConfig) -> str | None:
        """Why a search runs in PyTorch; None: the compiled engine does it."""
        if search.precision == "exact":
            return "precision = exact multiplies in float64, which the compiled engine does not"
        if search.coverage:
            return "coverage counts where the model looks, which the compiled engine does not show"
        from regard.engine.packing import refuses

        return refuses(self._config, self.device)

    def decoder(self, precision: str) -> Decoder:
        """The model compiled in a precision; "auto" is what its weights are stored in, float32 at least."""
        if precision == "auto":
            stored = self._bundle.provenance.notes.get("quantized") if self._bundle else None
            precision = "int8" if stored == "int8" else "float32"
        with self._lock:
            if precision not in self._decoders:
                from regard.engine.packing import compiled

                self._decoders[precision] = compiled(self.model, self._config, precision)
                if self._bundle is not None:
                    self._model = None
            return self._decoders[precision]

    def backend(self, search: SearchConfig, others: Sequence[Engine] = (), mask: int | None = None) -> Backend:
        """What computes a search, alone or as an ensemble."""
        members = (self, *others)
        reason = next(filter(None, (each.why_not_compiled(search) for each in members)), None)
        if reason is None:
            return Backend(decoders=[each.decoder(search.precision) for each in members])
        bfloat16 = search.precision == "bfloat16"
        return Backend([each.model_for(search.precision) for each in members], bfloat16=bfloat16, mask=mask)

    def warn_once(self, sentence: str) -> None:
        """Warns, but not again of the same."""
        with self._lock:
            if sentence in self._kept:
                return
            self._kept[sentence] = True
        warnings.warn(sentence, RegardWarning, stacklevel=3)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once under this name."""
        with self._lock:
            if name not in self._kept:
                self._kept[name] = make()
            return self._kept[name]


def instead_of(precision: str, reason: str) -> str:
    """What is done where the compiled engine cannot do what this precision asks for, in a sentence."""
    if precision == "int8":
        return f"precision int8 is not to be had here, and float64 is used instead: {reason}."
    return (
        f"precision {precision} is PyTorch's here, in which the last bits of a sentence's scores depend on what is "
        f"translated with it: {reason}."
    )
