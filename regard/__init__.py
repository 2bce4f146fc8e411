"""Regard: sequence transduction with attention. Two text files in; a translator out.

    import regard

    translator = regard.load("runs/my-translator/bundle")
    print(translator.translate(["A man is smiling."])[0].text)

Everything is imported when it is first asked for, so `import regard` costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from regard.machine import is_busy as _is_busy

if TYPE_CHECKING:
    from regard.adaptation.adapt import adapt
    from regard.bundle import Bundle
    from regard.cleaning.clean import Cleaned, clean
    from regard.comparison.compare import Compared, Comparing, compare
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
    from regard.estimation.estimate import estimate, learn_estimator
    from regard.explore.attribution import Attribution, attribute
    from regard.explore.heads import heads
    from regard.explore.look import Attention, look
    from regard.explore.pruning import prune_heads
    from regard.inspection.inspect import inspect
    from regard.language.fill import Choice, classify, embed, fill
    from regard.language.generate import Continuation, generate
    from regard.language.measure import perplexities
    from regard.linking.link import link_lines
    from regard.mixing.mix import Mixed, mix
    from regard.parsing.parse import parse
    from regard.recipe import Recipe
    from regard.recipe import load as load_recipe
    from regard.sweeping.record import Sweep
    from regard.sweeping.settings import Sweeping
    from regard.sweeping.sweep import sweep
    from regard.synthetic.backtranslate import backtranslate
    from regard.synthetic.distill import distill
    from regard.tasks.evaluate import Evaluation, evaluate
    from regard.tasks.fit import fit
    from regard.tasks.forced import score_lines
    from regard.tasks.translate import Translator, load
    from regard.tasks.translation import Translation
    from regard.tuning.tune import tune

    __version__: str

__all__ = ["Attention", "Attribution", "Bundle", "BundleError", "CheckpointError", "Choice", "Cleaned"]
__all__ += ["Continuation", "DataError", "Evaluation", "ExtensionError", "FetchError", "ModelError", "Recipe"]
__all__ += ["RecipeError", "RegardError", "TextError", "TrainingError", "Translation", "Translator", "__version__"]
__all__ += ["Compared", "Comparing", "Sweep", "Sweeping", "compare", "sweep"]
__all__ += ["adapt", "attribute", "classify", "clean", "embed", "evaluate", "fill", "fit", "generate", "heads"]
__all__ += ["inspect", "load", "load_recipe", "look", "parse", "perplexities", "prune_heads", "score_lines", "tune"]
__all__ += ["Mixed", "backtranslate", "distill", "estimate", "learn_estimator", "link_lines", "mix"]


# How long threads of PyTorch's OpenMP wait awake for work: turns of a loop (GNU's), milliseconds (LLVM's). GNU's own
# choice, about 10 ms, takes the cores from others; 50 us make training slower where there are no others, 500 us do not.
# It is read when PyTorch is loaded, which nothing here has done yet.
if os.environ.keys().isdisjoint({"GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"}):
    os.environ.update({"GOMP_SPINCOUNT": "1000" if _is_busy() else "10000", "KMP_BLOCKTIME": "1"})

_HOMES = {
    "adaptation.adapt": ("adapt",),
    "bundle": ("Bundle",),
    "cleaning.clean": ("Cleaned", "clean"),
    "comparison.compare": ("Compared", "Comparing", "compare"),
    "estimation.estimate": ("estimate", "learn_estimator"),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "explore.attribution": ("Attribution", "attribute"),
    "explore.heads": ("heads",),
    "explore.pruning": ("prune_heads",),
    "linking.link": ("link_lines",),
    "mixing.mix": ("Mixed", "mix"),
    "parsing.parse": ("parse",),
    "recipe": ("Recipe",),
    "tasks.evaluate": ("Evaluation", "evaluate"),
    "language.fill": ("Choice", "classify", "embed", "fill"),
    "tasks.fit": ("fit",),
    "language.generate": ("Continuation", "generate"),
    "inspection.inspect": ("inspect",),
    "explore.look": ("Attention", "look"),
    "language.measure": ("perplexities",),
    "tasks.forced": ("score_lines",),
    "tasks.translate": ("Translator", "load"),
    "tasks.translation": ("Translation",),
    "synthetic.backtranslate": ("backtranslate",),
    "synthetic.distill": ("distill",),
    "sweeping.record": ("Sweep",),
    "sweeping.settings": ("Sweeping",),
    "sweeping.sweep": ("sweep",),
    "tuning.tune": ("tune",),
}
_PLACES = {name: (home, name) for home, names in _HOMES.items() for name in names} | {"load_recipe": ("recipe", "load")}
"""Where each public name lives, and what it is called there."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("regard")
    if name not in _PLACES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    from importlib import import_module

    home, attribute = _PLACES[name]
    return globals().setdefault(name, getattr(import_module(f"regard.{home}"), attribute))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
