"""Regard: sequence transduction with attention. Two text files in; a translator out.

    import regard

    translator = regard.load("runs/my-translator/bundle")
    print(translator.translate(["A man is smiling."])[0].text)

Everything is imported when it is first asked for, so `import regard` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.bundle import Bundle
    from regard.errors import (
        BundleError,
        CheckpointError,
        DataError,
        ExtensionError,
        FetchError,
        ModelError,
        RecipeError,
        RegardError,
        TextError,
        TrainingError,
    )
    from regard.parsing.parse import parse
    from regard.recipe import Recipe
    from regard.recipe import load as load_recipe
    from regard.tasks.evaluate import Evaluation, evaluate
    from regard.tasks.fill import Choice, classify, embed, fill
    from regard.tasks.fit import fit
    from regard.tasks.generate import Continuation, generate
    from regard.tasks.inspect import inspect
    from regard.tasks.look import Attention, look
    from regard.tasks.measure import perplexities
    from regard.tasks.score import score_lines
    from regard.tasks.translate import Translator, load
    from regard.tasks.translation import Translation

    __version__: str

__all__ = [
    "Attention",
    "Bundle",
    "BundleError",
    "CheckpointError",
    "Choice",
    "Continuation",
    "DataError",
    "Evaluation",
    "ExtensionError",
    "FetchError",
    "ModelError",
    "Recipe",
    "RecipeError",
    "RegardError",
    "TextError",
    "TrainingError",
    "Translation",
    "Translator",
    "__version__",
    "classify",
    "embed",
    "evaluate",
    "fill",
    "fit",
    "generate",
    "inspect",
    "load",
    "load_recipe",
    "look",
    "parse",
    "perplexities",
    "score_lines",
]

_PLACES = {
    "Attention": "tasks.look:Attention",
    "Bundle": "bundle:Bundle",
    "Choice": "tasks.fill:Choice",
    "Continuation": "tasks.generate:Continuation",
    "Evaluation": "tasks.evaluate:Evaluation",
    "Recipe": "recipe:Recipe",
    "Translation": "tasks.translation:Translation",
    "Translator": "tasks.translate:Translator",
    "classify": "tasks.fill:classify",
    "embed": "tasks.fill:embed",
    "evaluate": "tasks.evaluate:evaluate",
    "fill": "tasks.fill:fill",
    "fit": "tasks.fit:fit",
    "generate": "tasks.generate:generate",
    "inspect": "tasks.inspect:inspect",
    "load": "tasks.translate:load",
    "load_recipe": "recipe:load",
    "look": "tasks.look:look",
    "parse": "parsing.parse:parse",
    "perplexities": "tasks.measure:perplexities",
    "score_lines": "tasks.score:score_lines",
    **{name: f"errors:{name}" for name in __all__ if name.endswith("Error")},
}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("regard")
    if name not in _PLACES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _PLACES[name].partition(":")
    value = getattr(import_module(f"regard.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
