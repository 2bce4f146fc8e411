"""A line translated while heads are off, weights are put by hand or parameters are multiplied.

Heads that are off are off in the compiled decoder too, which needs no PyTorch: none is imported here for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from regard.errors import TextError
from regard.tasks.decode import decode
from regard.tasks.engine import Backend
from regard.tasks.translate import Translator, load

from .changes import Changes, Head, Weights, checked, config_of, without

if TYPE_CHECKING:
    from regard.models.blocks import Transformer

    from .look import Attention

_MOST = 256
"""Tokens of a line that is translated with changes."""


@dataclass(frozen=True)
class ChangedTranslation:
    """What a model writes with a change, beside what it writes without."""

    text: str
    plain: str
    score: float  #: What it was ranked by.
    plain_score: float
    seconds: float  #: Of the one with the change.
    computed: str  #: "engine", where the compiled decoder did it, or "pytorch".

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return dict(vars(self))


def translate_changed(
    bundle: str | Path | Translator,
    line: str,
    changes: Changes,
    *,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    precision: str = "float32",
) -> ChangedTranslation:
    """A line's translation with these changes, and without, both computed in the same way.

    In float32 heads that are off, and nothing else, are off in the compiled decoder where it knows the model; all other
    changes are PyTorch's. Raises TextError for a line that cannot be read or has more than 256 tokens, DataError for
    changes that make no sense, ModelError for a model without heads.
    """
    translator = bundle if isinstance(bundle, Translator) else load(bundle, device="cpu")
    checked(changes, config_of(translator.recipe))
    rows = translator.encode([line], from_=from_, to=to)
    if not rows[0]:
        raise TextError("the line has no text to translate; give one that has.")
    if len(rows[0]) > _MOST:
        raise TextError(f"the line has {len(rows[0]):,} tokens, and at most {_MOST} are translated with changes.")
    search = translator.recipe.search
    search = search.model_copy(update={"beam": beam}) if beam else search
    start = time.perf_counter()
    changed = backend_with(translator, changes, precision)
    [[best]] = decode(changed, rows, search)
    seconds = time.perf_counter() - start
    if changed.decoders:
        plain = Backend(decoders=[translator.engine.decoder("float32")])
    else:
        plain = Backend([translator.engine.model_for(precision)])
    [[before]] = decode(plain, rows, search)
    texts = [translator.target.decode(each.ids) for each in (best, before)]
    computed = "engine" if changed.decoders else "pytorch"
    return ChangedTranslation(texts[0], texts[1], best.score, before.score, seconds, computed)


def backend_with(translator: Translator, changes: Changes, precision: str = "float32") -> Backend:
    """What searches with these changes: the compiled decoder in float32 where it can, else PyTorch."""
    if precision == "float32" and changes.only_off and translator.engine.refusal() is None:
        from regard.engine.packing import packed

        config = config_of(translator.recipe)
        return Backend(decoders=[packed(without(_arrays(translator), config, changes.strengths), config, precision)])
    from .changed import Changed

    return Backend([Changed(cast("Transformer", translator.engine.model_for(precision)), changes)])


def backend_without(translator: Translator, off: Sequence[Head]) -> Backend:
    """What searches with these heads off."""
    return backend_with(translator, Changes(dict.fromkeys(off, 0.0)))


def _arrays(translator: Translator) -> Weights:
    if translator.bundle is not None:
        from regard.engine.packing import shapes_of

        sizes = len(translator.source), len(translator.target)
        return translator.bundle.weights(shapes_of(config_of(translator.recipe), *sizes))
    return {name: p.detach().float().numpy() for name, p in translator.engine.model.named_parameters()}


def look_changed(
    bundle: str | Path | Translator,
    line: str,
    changes: Changes,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
) -> tuple[Attention, ChangedTranslation | None]:
    """Where the model looks with changes, while it writes `target` or what it writes with them; see `regard.look`.

    And its translation with and without them, where no target is given. Computed in float64.
    """
    from regard.language.open import Pipeline

    from .changed import Changed
    from .look import look

    translator = bundle if isinstance(bundle, Translator) else load(bundle, device="cpu")
    checked(changes, config_of(translator.recipe))
    found = None
    if target is None:
        found = translate_changed(translator, line, changes, from_=from_, to=to, beam=beam, precision="exact")
        target = found.text
    model = cast("Transformer", translator.engine.model_for("exact"))
    changed = Pipeline(Changed(model, changes), translator.recipe, translator.source, translator.target)
    return look(changed, line, target=target, from_=from_, to=to), found
