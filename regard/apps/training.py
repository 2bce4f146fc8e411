"""A run's progress in the terminal: a bar where there is a terminal, plain lines where there is none."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from regard.apps.terminal import say

Event = dict[str, Any]
"""What `fit` tells; the key "event" says which kind it is."""

_QUIET = 10
"""Without a terminal, every tenth event of training is a line."""


class Display:
    """Hears the events of `fit`; a context in which the bar stands."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.heard = 0
        self.clock = False
        """Whether the run stops by the clock."""
        self.task: TaskID | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=2,  # drawing takes a core from training
        )

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event; kinds that are not known are left out."""
        show = getattr(self, f"_{event['event']}", None)
        if show is not None:
            show(event)

    def _say(self, text: str) -> None:
        say(self.console, text)

    def _prepare(self, event: Event) -> None:
        if self.task is None:
            self.task = self.bar.add_task("preparing", total=None, note="")
        self.bar.update(self.task, note=f"{event['count']:,} {event['what']}")

    def _begin(self, event: Event) -> None:
        new = ", ".join(event["new"]) or "nothing"
        self._say(f"begun with the parameters of {event['bundle']}; new: {new}")

    def _batch(self, event: Event) -> None:
        self._say(f"batches of {event['tokens']:,} tokens, as many as fit in memory")

    def _start(self, event: Event) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self._say(event["filters"])
        source, target = event["tokens"]
        tokens = f"{source:,}" if source == target else f"{source:,} and {target:,}"
        shared = f" in {event['processes']} processes" if event["processes"] > 1 else ""
        self._say(
            f"{event['parameters']:,} parameters, {tokens} tokens, {event['precision']} on {event['device']}{shared}; "
            "Ctrl-C saves and stops"
        )
        if event.get("resumed_from"):
            self._say(f"going on from {event['resumed_from']}")
        before, now = event["threads"]
        if before != now and event["device"] == "cpu":
            self._say(
                f"saved with {before} threads, going on with {now}: as good, but not bit for bit the run that was "
                f"never stopped; OMP_NUM_THREADS={before} goes on exactly"
            )
        self.clock = bool(event.get("minutes"))
        total = round(60 * event["minutes"]) if self.clock else event["max_updates"]
        self.task = self.bar.add_task("training, seconds" if self.clock else "training", total=total, note="")

    def _train(self, event: Event) -> None:
        note = f"loss {event['loss']:.3f}, {event['tokens_per_second']:,.0f} tokens/s, epoch {event['epoch'] + 1}"
        if self.task is not None:
            done = round(event["trained"]) if self.clock else event["update"]
            self.bar.update(self.task, completed=done, note=note)
        if not self.console.is_terminal and self.heard % _QUIET == 0:
            self._say(f"update {event['update']:,}: {note}")
        self.heard += 1

    def _validate(self, event: Event) -> None:
        bleu = f", BLEU {event['bleu']:.2f}" if "bleu" in event else ""
        accuracy = f", accuracy {event['accuracy']:.2f} %" if "accuracy" in event else ""
        better = " (best so far)" if event["improved"] else ""
        self._say(
            f"update {event['update']:,}: dev loss {event['loss']:.4f}, perplexity {event['perplexity']:.2f} per token"
            f"{bleu}{accuracy}{better}"
        )

    def _cut(self, event: Event) -> None:
        self._say(
            f"update {event['update']:,}: a batch of {event['target_tokens']:,} target tokens did not fit in memory "
            "and was cut in two; lower data.batch_tokens if this goes on"
        )

    def _damaged(self, event: Event) -> None:
        self._say(f"{event['why']}\nIt was renamed, and the run goes on from {event['instead']}")

    def _unscored(self, event: Event) -> None:
        files = f" ({', '.join(event['files'])})" if event["files"] else ""
        self._say(f"{event['set']}{files}: was not scored: {event['why']}")

    def _score(self, event: Event) -> None:
        for score in event["scores"].values():
            interval = score["interval"]
            spread = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
            self._say(f"{event['set']}: {score['name']} {score['value']:.2f}{spread} {score['signature']}")
