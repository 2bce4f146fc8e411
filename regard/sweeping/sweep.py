"""`regard.sweep`: settings of a recipe searched on validation data.

What a sweep leaves in its directory: `sweep.json` (all trials), `best.toml` (the recipe with the best settings),
`best/` (the bundle of that trial), `trials/0001/` and so on (each trial's log and curves) and `prepared/`.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from regard import recipe as recipes
from regard.bundle import versions
from regard.errors import DataError, Interrupted, ModelError, TextError, TrainingError
from regard.machine import locked, write_atomically
from regard.models.blocks import device_named
from regard.recipe import Recipe
from regard.tasks.fit import fit
from regard.train import Callback, Trainer

from .record import Asked, Sweep, Trial, taken_up
from .search import Search, Told, check_installed
from .settings import Sweeping
from .space import Space, Tried, space_of, with_settings

Hear = Callable[[Trial], None]

_TEXT = ("data.", "text.")
_HEAVY = ("checkpoints", "snapshots", "bundle", "best.safetensors", "hypotheses", "prepared")
"""What a trial leaves that nobody needs of one that lost."""


def sweep(
    recipe: Recipe | str | Path,
    out: str | Path,
    tried: Tried,
    settings: Sweeping | None = None,
    *,
    progress: Hear | None = None,
) -> Sweep:
    """Search settings of a recipe by its validation scores; returns every trial, which `out`/sweep.json holds too.

    tried: of each key, such as "train.learning_rate", a range ("1e-4..3e-3", "2..6"), choices ("0.1,0.2") or a list of
    values. progress hears of each trial when it begins, after every validation and at its end. With the same arguments
    a sweep that was interrupted goes on; more trials may be asked for. Test sets are never scored.

    Raises Interrupted after Ctrl-C or SIGTERM, and a RegardError for what the user can mend.
    """
    check_installed()
    settings, out = settings or Sweeping(), Path(out)
    recipe = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    metric = settings.metric or recipe.train.validate_with
    recipe = with_settings(recipe, {"train.validate_with": metric}, name=f"--metric {metric}")
    device_named(recipe.train.device)  # raises ModelError now, which would be each trial's
    space = space_of(recipe, tried)
    asked = Asked(
        recipe=recipe.model_dump(mode="json"),
        space=space.written,
        metric=metric,
        **settings.model_dump(include={"sampler", "prune", "seed"}),
    )
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock") as free:
        if not free:
            raise TrainingError(f"{out}: another process sweeps in this directory; wait, or choose another --out.")
        record = taken_up(out, asked)
        return _Trials(out, space, settings, record, progress or (lambda trial: None)).run()


class _Trials:
    """The trials of a sweep, one after the other."""

    def __init__(self, out: Path, space: Space, settings: Sweeping, sweep: Sweep, hear: Hear) -> None:
        self.out, self.space, self.settings, self.sweep, self.hear = out, space, settings, sweep, hear
        self.search = Search(space, settings, sweep)

    def run(self) -> Sweep:
        """Train what is still to be trained."""
        trials = self.sweep.trials
        for trial in trials:  # all of them, so that the search knows what it knew
            told = self.search.begin(trial)
            if trial.state == "running":
                self._train(trial, told)
            else:
                told.end(trial)
        self._settle()
        while len(trials) < self.settings.trials and not self._late():
            settings = self.search.draw()
            if settings is None:
                break
            trials.append(Trial(number=len(trials) + 1, settings=settings))
            self._train(trials[-1], self.search.begin(trials[-1]))
        if not self.sweep.ranked:
            why = next((trial.why for trial in reversed(trials) if trial.why), "there was no time for any")
            raise TrainingError(f"{self.out}: no trial of {len(trials)} came to its end: {why}")
        return self.sweep

    def _late(self) -> bool:
        return 0 < 60 * self.settings.minutes <= sum(trial.seconds for trial in self.sweep.trials)

    def _train(self, trial: Trial, told: Told) -> None:
        """Train a trial to its end, from its newest checkpoint if there is one."""
        watcher = _Watcher(trial, told, self._tell)
        self._tell(trial)
        recipe = self._recipe(trial)
        try:
            if not told.behind:  # else the sweep was killed between that score and the trial's end
                fit(recipe, self._folder(trial), callbacks=[watcher], resume=True)
            self._end(trial, "pruned" if told.behind else "complete", recipe.train.keep)
        except Interrupted:
            if watcher.asked or not told.behind:
                raise
            self._end(trial, "pruned", recipe.train.keep)
        except (ModelError, TrainingError, TextError, DataError) as error:
            # It diverged, or is too large for the memory; text is to blame only where that is what is tried.
            if isinstance(error, TextError | DataError) and not any(k.startswith(_TEXT) for k in trial.settings):
                raise
            trial.state, trial.why = "failed", str(error)
        finally:
            watcher.clock()
            self.sweep.save(self.out)
        told.end(trial)
        self._settle()
        self._tell(trial)

    def _tell(self, trial: Trial) -> None:
        self.sweep.save(self.out)
        self.hear(trial)

    def _end(self, trial: Trial, state: Literal["pruned", "complete"], keep: str) -> None:
        """What came of a trial: the score of the weights that it leaves."""
        sign = 1 if self.sweep.higher else -1
        found = [(update, score) for update, score in trial.scores if score is not None]
        trial.state = state
        if not trial.scores or trial.scores[-1][1] is None:
            trial.state = "failed" if state == "complete" else state
            trial.why = "its score is no number" if trial.scores else "it was not validated; lower train.validate_every"
        elif keep == "best" and state == "complete":
            trial.update, trial.score = max(found, key=lambda each: (sign * each[1], -each[0]))
        else:
            trial.update, trial.score = found[-1]

    def _recipe(self, trial: Trial) -> Recipe:
        """What the trial trains: no test sets, and one store for all trials."""
        made = with_settings(self.space.recipe, trial.settings, name=f"trial {trial.number}")
        data = {"test": {}, "cache": made.data.cache or str((self.out / "prepared").resolve())}
        return made.model_copy(update={"data": made.data.model_copy(update=data)})

    def _folder(self, trial: Trial) -> Path:
        return self.out / "trials" / f"{trial.number:04d}"

    def _settle(self) -> None:
        """Keep the best trial's bundle and recipe, and of the others no weights; may be done again at any time."""
        ranked = self.sweep.ranked
        if ranked:
            best = ranked[0]
            bundle, place = self._folder(best) / "bundle", self.out / "best"
            if bundle.exists():
                part = self.out / "best.part"
                shutil.rmtree(part, ignore_errors=True)
                if self.settings.keep:
                    shutil.copytree(bundle, part)
                shutil.rmtree(place, ignore_errors=True)
                (part if self.settings.keep else bundle).rename(place)
            recipe = with_settings(self.space.recipe, best.settings, name="the best recipe")
            write_atomically(self.out / "best.toml", recipes.to_toml(recipe))
            self.sweep.best = best.number
        if not self.settings.keep:
            for trial in self.sweep.trials:
                for name in _HEAVY:
                    path = self._folder(trial) / name
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)
        self.sweep.importance, self.sweep.versions = self.search.importance(), versions("optuna")


class _Watcher(Callback):
    """Keeps a trial's validation scores, and stops it where it falls behind."""

    def __init__(self, trial: Trial, told: Told, tell: Hear) -> None:
        self.trial, self.told, self.tell = trial, told, tell
        self.mark = time.perf_counter()
        self.asked = False  # whether somebody else asked the training to stop

    def on_validation(self, trainer: Trainer, scores: dict[str, float]) -> None:
        """Note the score; those that were noted before a run was killed come again, and are the same."""
        update, score = trainer.progress.update, scores[trainer.config.validate_with]
        if self.trial.scores and update <= self.trial.scores[-1][0]:
            return
        self.trial.scores.append((update, score if math.isfinite(score) else None))
        self.told.validated(*self.trial.scores[-1])
        if self.told.behind:
            self.asked, trainer.stop = trainer.stop, True
        self.clock()
        self.tell(self.trial)

    def clock(self) -> None:
        """Count the seconds since this was done last."""
        now = time.perf_counter()
        self.trial.seconds, self.mark = round(self.trial.seconds + now - self.mark, 3), now
