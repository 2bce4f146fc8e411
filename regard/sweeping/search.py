"""Which settings are tried next, and which trials are stopped early: by Optuna, in memory.

`sweep.json` is all that is kept: its trials are told to a new study in order, and draws are seeded by the number of the
trial. So a sweep that goes on decides as one that was never interrupted.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from typing import TYPE_CHECKING

from regard.errors import DataError, RecipeError, install

from .record import Sweep, Trial
from .settings import Sweeping
from .space import Settings, Space

if TYPE_CHECKING:
    import optuna

_ETA = 3  #: One of so many trials goes on from each rung (Li et al. 2020).
_PARTS = 9  #: Trials are compared first after a ninth of their validations, and so again after a third.
_BY_CHANCE = 10  #: Draws that gave nothing new after which settings are drawn at random.
_HARDLY_ANY = 1000  #: Draws after which it is said that the recipe refuses nearly all.
_FEW = 8  #: Trials below which nothing is said of what mattered.


def check_installed() -> None:
    """Raises DataError where there is no Optuna."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        raise DataError(f"a sweep needs Optuna, which is not installed: {install('sweep')}.") from None


class Search:
    """An Optuna study of a sweep's trials; TPE (Bergstra et al. 2011), and asynchronous successive halving."""

    def __init__(self, space: Space, settings: Sweeping, sweep: Sweep) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.settings, self.sweep = space, settings, sweep
        self.distributions = {axis.key: axis.distribution() for axis in space.axes}
        halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=_first_rung(space), reduction_factor=_ETA)
        self.study = optuna.create_study(
            direction="maximize" if sweep.higher else "minimize",
            pruner=halving if settings.prune else optuna.pruners.NopPruner(),
        )
        self.points = space.every() if settings.sampler == "grid" else []
        if len(self.points) > settings.trials:
            raise RecipeError(
                f"--sampler grid tries each of {len(self.points):,} settings, and --trials is {settings.trials}; give "
                f"--trials {len(self.points)}, fewer values, or another --sampler."
            )

    def draw(self) -> Settings | None:
        """Settings that were not tried yet, and that the recipe takes; None if there are none left."""
        import optuna

        number = len(self.sweep.trials)
        if self.settings.sampler == "grid":
            return self.points[number] if number < len(self.points) else None
        seen = {json.dumps(trial.settings) for trial in self.sweep.trials}
        for attempt in range(_HARDLY_ANY):
            if len(seen) >= self.space.size:
                return None
            seed = random.Random(f"{self.settings.seed}/{number}/{attempt}").getrandbits(31)
            by_chance = self.settings.sampler == "random" or attempt >= _BY_CHANCE
            samplers = optuna.samplers
            self.study.sampler = samplers.RandomSampler(seed) if by_chance else samplers.TPESampler(seed=seed)
            asked = self.study.ask(self.distributions)
            self.study.tell(asked, state=optuna.trial.TrialState.FAIL)  # of which samplers and pruners know nothing
            settings = {axis.key: axis.value(asked.params[axis.key]) for axis in self.space.axes}
            if (key := json.dumps(settings)) not in seen and self.space.allows(settings):
                return settings
            seen.add(key)
        raise RecipeError(
            f"of {_HARDLY_ANY:,} settings that were drawn the recipe took none that is new; name fewer values with "
            "--try, such as those that go together."
        )

    def begin(self, trial: Trial) -> Told:
        """What is told of a trial with these settings; its scores up to now are told at once."""
        drawn = {axis.key: axis.drawn(trial.settings[axis.key]) for axis in self.space.axes}
        self.study.enqueue_trial(drawn)
        last = trial.settings.get("train.max_updates", self.space.recipe.train.max_updates)
        told = Told(self.study, self.study.ask(self.distributions), last)
        for update, score in trial.scores:
            told.validated(update, score)
        return told

    def importance(self) -> dict[str, float]:
        """How much each key mattered (PED-ANOVA, Watanabe et al. 2023); nothing if trials are few."""
        import optuna

        if len(self.sweep.ranked) < _FEW or len(self.space.axes) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few trials
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            return optuna.importance.get_param_importances(self.study, evaluator=evaluator)


class Told:
    """One trial, as Optuna is told of it."""

    def __init__(self, study: optuna.Study, trial: optuna.Trial, last: object) -> None:
        self.study, self.trial, self.last = study, trial, last
        self.validations = 0
        self.behind = False  # whether it is to be stopped

    def validated(self, update: int, score: float | None) -> None:
        """Tell the score of one more validation; None is no number."""
        self.validations += 1
        self.trial.report(math.nan if score is None else score, self.validations)
        # Asked at the last update too, for others are compared with its score there.
        self.behind = self.trial.should_prune() and update != self.last

    def end(self, trial: Trial) -> None:
        """Tell what came of it; one that failed is worse than any that was stopped as far on."""
        from optuna.trial import TrialState

        if trial.state == "complete":
            self.study.tell(self.trial, trial.score)
            return
        if trial.state == "failed":
            self.trial.report(math.nan, self.validations + 1)
        self.study.tell(self.trial, state=TrialState.PRUNED)


def _first_rung(space: Space) -> int:
    """Validations after which trials are compared first."""
    train = space.recipe.train
    if train.epochs or train.minutes:  # nobody knows how many there will be
        return 1
    validations = math.ceil(train.max_updates / train.validate_every)
    return math.ceil(validations / _PARTS)
