"""What a bundle makes of a file of lines, a record a line; an interrupted job does only what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from regard.cluster.shards import measured, parts_of, shards_beside
from regard.errors import ModelError
from regard.machine import digest, write_atomically
from regard.search.table import Options
from regard.tasks.lines import translate_long
from regard.tasks.translate import Translator, load
from regard.tasks.translation import Translation

SHARD = 2_000
"""Lines of a shard: what is lost at most when a job is interrupted."""
Progress = Callable[[int, int], None]
Record = Callable[[int, str, Translation], object]
"""The number of a line from 0, the line and its translation -> what is kept of it, in plain values."""


class Job:
    """A bundle, a file, how it is translated, and everything else that the result depends on."""

    def __init__(self, bundle: str | Path, file: str | Path, options: Options, **others: object) -> None:
        self.translator: Translator = load(bundle)
        self.file, self.options = Path(file), options
        self.count, text = measured(self.file)
        assert self.translator.bundle is not None
        made_by = {"bundle": self.translator.bundle.digest, "options": options.model_dump(mode="json")}
        self.wanted = {"lines": self.count, "text": text, **made_by, **others}

    @contextmanager
    def records(
        self, output: Path, record: Record, progress: Progress | None
    ) -> Iterator[Callable[[], Iterator[object]]]:
        """What reads the records of all lines in order, made now as far as they are not there; they go in the end."""
        with shards_beside(output, self.wanted, self.count, SHARD) as shards:
            missing = shards.missing
            parts = parts_of(self.file, SHARD, missing) if missing else iter(())
            for done, (number, first, lines) in enumerate(parts, start=shards.number - len(missing)):
                if progress:
                    progress(min(done * SHARD, self.count), self.count)
                made = enumerate(self._made(first, lines), start=first - 1)
                shards.put(number, [json.dumps(record(i, *one), ensure_ascii=False) for i, one in made])
            yield lambda: map(json.loads, shards.lines())

    def _made(self, first: int, lines: list[str]) -> Iterator[tuple[str, Translation]]:
        each = partial(self.translator.translate, options=self.options, first_line=first)
        search = self.translator.searching(self.options)
        whole = search.draws or self.options.n_best > 1  # of which there are several for a whole line only
        found = (
            each(lines) if whole else translate_long(self.translator, lines, each, to=self.options.to, first_line=first)
        )
        return zip(lines, found, strict=True)


def checked(options: Options) -> Options:
    """The options; raises ModelError for those that give no single text a line."""
    if options.detailed or isinstance(options.constraints, tuple):
        raise ModelError("a corpus is made of lines of text; leave out what asks for more than them.")
    return options


def card_of(output: Path) -> Path:
    """Where it is kept what an output was made of."""
    return output.with_name(f"{output.name}.made.json")


def keep_card(outputs: tuple[Path, ...], wanted: Mapping[str, object], result: Mapping[str, object]) -> None:
    """Writes down what was made of what, so that nobody makes it again."""
    card = {"wanted": wanted, "sha256": [digest(file) for file in outputs], "result": result}
    write_atomically(card_of(outputs[0]), json.dumps(card, indent=1, ensure_ascii=False) + "\n")


def known(outputs: tuple[Path, ...], wanted: Mapping[str, object]) -> dict[str, object] | None:
    """The result of the same job where its outputs are there unchanged, else None."""
    card = card_of(outputs[0])
    if not all(file.is_file() for file in (card, *outputs)):
        return None
    try:
        held = json.loads(card.read_text(encoding="utf-8"))
        same = held["wanted"] == json.loads(json.dumps(wanted)) and held["sha256"] == [digest(f) for f in outputs]
        return dict(held["result"]) if same else None
    except (ValueError, KeyError, TypeError):
        return None
