"""The journal of a run: every event in `log.jsonl` and in TensorBoard's files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.disk import write_atomically
from regard.train import Event, Report


class Journal:
    """Writes every event of training to `log.jsonl` and to TensorBoard's files, then passes it on."""

    def __init__(self, out: Path, report: Report) -> None:
        self.out, self.report = out, report
        self.curves: Any = None

    def open(self, update: int) -> None:
        """Begin after `update`: what a run that was killed wrote beyond its checkpoint is dropped and written again."""
        path = self.out / "log.jsonl"
        kept = []
        if path.exists() and update:
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    event = json.loads(line)
                except ValueError:  # the line that was being written when the run was killed
                    continue
                if event["update"] <= update:
                    kept.append(line + "\n")
        write_atomically(path, "".join(kept))
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.curves = SummaryWriter(str(self.out / "curves"), purge_step=update + 1)

    def __call__(self, event: Event) -> None:
        """Write and pass on one event; those of no update are only passed on."""
        if "update" in event:
            with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({k: None if v != v else v for k, v in event.items()}) + "\n")
            if self.curves is not None:
                for key, value in event.items():
                    if isinstance(value, float) and value == value:
                        self.curves.add_scalar(f"{event['event']}/{key}", value, event["update"])
        self.report(event)

    def close(self) -> None:
        """Close TensorBoard's files."""
        if self.curves is not None:
            with suppress(OSError):  # every value is in log.jsonl too
                self.curves.close()
