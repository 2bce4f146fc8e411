"""What training and search know of a model. No torch is imported here: a family is known before any is built.

Sizes: B sentences, S source tokens, T target tokens, D width, V target vocabulary. A layout says where sequences end;
with a packed layout (B, T) becomes (L,).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel

from regard.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.nn.state import Layout, Observer, State

Kind = Literal["encoder-decoder", "mask-predictor", "language-model", "reader", "classifier", "span-reader", "chart"]
"""What a family is: each has a protocol below."""


@dataclass(frozen=True)
class Family:
    """What a page says of a family in its `FAMILIES`: by it alone recipes, tasks and tests know the family."""

    config: type[BaseModel]
    """What `[model]` may hold; its `width` is that of `hidden`, its `family` the family's name."""
    build: Callable[..., Any]
    """Config, source and target vocabulary, id of the padding -> a new model."""
    small: Mapping[str, int]
    """Sizes of a model that has every part and takes no time: the laws are tried on it."""
    kind: Kind = "encoder-decoder"
    step_by_step: bool = True
    """An encoder-decoder that writes one token after the other; false: all of them at once."""
    cross_attention: Callable[[Any], tuple[int, int]] = lambda config: (0, 0)
    """Config -> how many layers of the decoder look at the source, and with how many heads each."""
    has_attention: bool = True
    """There is attention that an observer can see: to the source, or of a line to itself."""
    capacity: Callable[[Any], int | None] = lambda config: None
    """Config -> the most tokens that a line may have, its end counted; None: any number."""
    vectors: bool = False
    """What it reads becomes a tensor with a vector for each position, (…, D): by `encode`, or `decode` if it writes."""
    needs_vocabulary: bool = False
    """The model has `spell`: see `NeedsVocabulary`."""
    loops: bool = False
    """The model goes token by token in training too, which no compiler unrolls, and its weights are used in between."""
    shares_parts: Callable[[Any], bool] = lambda config: False
    """Config -> whether all layers share a part, which belongs to no one layer then."""
    carries: bool = False
    """With `carry` in its config windows of a stream begin with the state in which the one before ended: `Carries`."""


class HasParameters(Protocol):
    """A model of any kind."""

    training: bool

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


class Projects(HasParameters, Protocol):
    """A model whose `project` is linear, at its end at least."""

    output: nn.Linear
    """The last map of `project`, (V, D): apart, so that a loss can make its gradients in chunks."""

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> logits (…, V) of tokens, or of classes; apart, so that a loss can take it in chunks."""


class Decodes(Projects, Protocol):
    """A model that writes."""

    def decode(
        self, tokens: Tensor, state: Any, layout: Layout | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, Any]:
        """Target ids (B, T) after the state -> hidden (B, T, D) and the state after them.

        T is a whole target, a prompt, or one step. Without a layout every row has T tokens. `observe` is given the
        weights and auxiliary losses that it wants.
        """


class EncoderDecoder(Decodes, Protocol):
    """A model that reads a whole source and writes a target token by token."""

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Any:
        """Source ids (B, S) -> the memory: what `start` takes, a tensor (B, S, D) or any other value."""

    def start(self, memory: Any, layout: Layout, capacity: int | None = None) -> State:
        """The state before the first target token; what is looked at in the memory is prepared here, once.

        With a capacity, caches are fixed blocks of so many tokens; without, they grow.
        """


class MaskPredictor(EncoderDecoder, Protocol):
    """An encoder-decoder whose `decode` is given whole targets with masks, and predicts the token at each position."""

    def likely_lengths(self, state: Any, number: int) -> Tensor:
        """The likeliest `number` lengths of each target, its end counted: (B, number)."""


class LanguageModel(Decodes, Protocol):
    """A model that continues a text, token by token."""

    def start(self, capacity: int | None = None) -> State:
        """The state before the first token, whatever the number of rows; capacity as above."""


class Carries(LanguageModel, Protocol):
    """A language model whose state can be taken from window to window, and kept in a checkpoint.

    Its states have `packed()`: all that they hold as one tensor (…, B, D) of float32.
    """

    def resume(self, packed: Tensor) -> State:
        """The state that was packed, without its history."""


class MaskedLM(Projects, Protocol):
    """A model that reads a whole line and predicts the token at each position: `project` is `output` of `head`."""

    def encode(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) -> hidden (B, S, D)."""

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (…, D) -> what `output` takes, (…, D)."""


class Classifier(Projects, Protocol):
    """A model that makes one vector of a line, and says of what class it is; the classes are the target's tokens."""

    def classify(self, source: Tensor, layout: Layout, observe: Observer | None = None) -> Tensor:
        """Ids (B, S) -> what `output` takes, (B, D)."""


class NeedsVocabulary(Protocol):
    """A model to which it matters how its tokens are spelt; it is told as soon as it is made."""

    def spell(self, source: Sequence[str], target: Sequence[str]) -> None:
        """The tokens of both vocabularies by their ids, special ones included; U+2581 marks a space."""


def check_one_vocabulary(source: int, target: int) -> None:
    """Raises ModelError for a model of one side whose sides have vocabularies of two sizes."""
    if source != target:
        raise ModelError(
            f"a language model has one vocabulary, and here are {source} and {target} tokens; set text.joint = true"
        )
