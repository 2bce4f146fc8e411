"""`regard.backtranslate`: text of the target side, and a source for each line by a model of the other direction.

Sennrich et al. 2016; the tag that tells synthetic sources from real ones is that of Caswell et al. 2019; Edunov et al.
2018 compare drawing with a beam.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import cast

from pydantic import BaseModel, Field

from regard.errors import ModelError, TextError
from regard.search.table import Options
from regard.settings import Filters
from regard.tasks.translate import Translator
from regard.tasks.translation import Translation
from regard.text import iter_lines, write_lines

from .records import Job, Progress, checked, keep_card, known

_LONG, _DISTINCT = 12, 0.35
"""A source of so many tokens or more, of which so small a share is different, goes round in a circle."""


class Cleaning(BaseModel, extra="forbid", frozen=True):
    """Which pairs are kept; lengths are in tokens of the reverse bundle."""

    longest: int = Field(256, ge=1, description="leave out a pair with more tokens on a side")
    max_ratio: float = Field(4.0, ge=1, description="leave out a pair with so many times the tokens of the other side")
    clean: bool = Field(True, description="leave out empty, cut off, endless, copied and repeated pairs too")


class Synthetic(BaseModel, extra="forbid", frozen=True):
    """How many pairs were written, of how many lines, and why others were not."""

    lines: int
    pairs: int
    dropped: dict[str, int]


def backtranslate(
    bundle: str | Path,
    monolingual: str | Path,
    out: tuple[str | Path, str | Path],
    *,
    tag: str = "",
    options: Options | None = None,
    cleaning: Cleaning | None = None,
    progress: Progress | None = None,
    **given: object,
) -> Synthetic:
    """Writes synthetic source lines and the lines of `monolingual` that they are of into two files, pair by pair.

    bundle: of the reverse direction, which reads what the new model is to write. tag: a token that begins each source;
    the new model's tokenizer must know it: `text.symbols` of its recipe. `options`, or their names as keywords, are
    as in `Translator.translate`: `samples=1` draws. `progress` hears how many lines are done, of how many.

    An interrupted call, made again, goes on with the shards that are missing; a finished one makes nothing again.
    Raises TextError for lines and tags that cannot be used, ModelError for options that give no single translation.
    """
    _check_tag(tag)
    options, cleaning = checked(Options.of(options, **given)), cleaning or Cleaning()
    job = Job(bundle, monolingual, options)
    if job.translator.searching(options).draws > 1 or options.n_best > 1:
        raise ModelError("each line gets one source; ask for one sample (samples = 1), and leave n_best out.")
    source, target = map(Path, out)
    if len({source.resolve(), target.resolve(), job.file.resolve()}) < 3:
        raise TextError(f"--out {source} {target}: must be two new files, and not {job.file}.")
    wanted = {**job.wanted, "tag": tag, "cleaning": cleaning.model_dump()}
    if (result := known((source, target), wanted)) is not None:
        return Synthetic.model_validate(result)
    for file in (source, target):
        file.parent.mkdir(parents=True, exist_ok=True)
    with job.records(source, _record, progress) as read:
        pairs = zip(_texts(read()), iter_lines(job.file), strict=True)
        reasons = list(_reasons(pairs, job.translator, cleaning))
        kept = [reason is None for reason in reasons]
        ahead = f"{tag} " if tag else ""
        write_lines(source, (ahead + text for text, _ in compress(_texts(read()), kept)))
        write_lines(target, compress(iter_lines(job.file), kept))
        dropped = Counter(reason for reason in reasons if reason is not None)
        made = Synthetic(lines=job.count, pairs=sum(kept), dropped=dict(sorted(dropped.items())))
        keep_card((source, target), wanted, made.model_dump())
    return made


def _record(number: int, line: str, found: Translation) -> object:
    return [found.text, found.ended]


def _texts(records: Iterator[object]) -> Iterator[tuple[str, bool]]:
    """Texts, and whether each ended before the length limit."""
    for record in records:
        text, ended = cast("tuple[str, bool]", record)
        yield text, ended


def _reasons(
    pairs: Iterable[tuple[tuple[str, bool], str]], translator: Translator, cleaning: Cleaning
) -> Iterator[str | None]:
    """Of each pair why it is left out; None if it is kept."""
    filters = Filters(max_length=cleaning.longest, max_ratio=cleaning.max_ratio)
    seen = set[bytes]()
    for (text, ended), line in pairs:
        if not cleaning.clean:
            yield None
            continue
        ids, written = translator.target.encode(text), translator.source.encode(line)
        digest = hashlib.blake2b(f"{text}\n{line}".encode(), digest_size=12).digest()
        reason = filters.reason(text, line, len(ids), len(written), again=False)
        if reason is None and not ended:
            reason = "cut off"
        elif reason is None and len(ids) >= _LONG and len(set(ids)) < _DISTINCT * len(ids):
            reason = "endless"
        elif reason is None and "\ufffd" in text:
            reason = "broken"  # bytes that are no character
        elif reason is None and text.strip() == line.strip():
            reason = "copied"
        elif reason is None and digest in seen:
            reason = "duplicate"
        seen.add(digest)
        yield reason


def _check_tag(tag: str) -> None:
    if tag and (tag != "".join(tag.split()) or "\u2581" in tag or "\0" in tag):
        raise TextError(f"--tag {tag!r}: must be one token without spaces, such as '<bt>'.")
