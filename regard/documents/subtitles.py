"""SubRip and WebVTT: what is said between times. A sentence that goes over several cues is translated as one.

Nothing but the text of the cues is changed: numbers, times, places, notes and styles stay as they are.
"""

from __future__ import annotations

import html
import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.errors import TextError
from regard.text.sentences import unspaced

from .markup import Translate, translate_markup
from .plain import as_text

_TIME = r"((?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_MARK = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
"""Tags of both formats, WebVTT's times inside of a cue, and the overrides that SubRip has from another format."""
_ENDED = re.compile(r"""[.!?…。！？♪:][\s"'”’»›)\]」』]*\Z""")
_SPEAKER = re.compile(r"\s*[-–—>♪\[(]")
_SECONDS, _CUES, _LINES = 2.0, 6, 8
"""A sentence goes on over a pause of at most so long and at most so many cues; a cue has at most so many lines."""


@dataclass
class _Cue:
    """What a cue says, and in which lines of the document."""

    first: int
    end: int
    start_s: float
    end_s: float
    lines: list[str]

    @property
    def text(self) -> str:
        """All its lines as one."""
        return " ".join(" ".join(self.lines).split())

    @property
    def plain(self) -> bool:
        """Whether it has no marks, and is said by one speaker."""
        return not any(_MARK.search(line) or _SPEAKER.match(line) for line in self.lines)


def subtitles(web: bool) -> Callable[[bytes, Translate, str], bytes]:
    """How subtitles are translated: of WebVTT, which writes & and < as HTML does, or of SubRip."""

    def work(data: bytes, translate: Translate, to: str = "") -> bytes:
        content, encoded = as_text(data)
        lines = re.split(r"(\r\n|\r|\n)", content)  # each at an even place, with its end behind it
        cues = _cues(lines)
        if not cues and content.strip() and not (web and content.startswith("WEBVTT")):
            raise TextError("these subtitles have no cue, which a line such as 00:00:01,000 --> 00:00:02,000 begins.")
        groups = _sentences(cues)
        marked = [_marked(" ".join(cue.text for cue in group), web) for group in groups]
        found = translate_markup([text for text, _ in marked], translate, xml=True)
        for group, before, made in zip(groups, marked, found, strict=True):
            if made == before[0]:
                continue
            for cue, part in zip(group, _shared(_unmarked(made, before[1], web), group), strict=True):
                _write(lines, cue, in_lines(part, len(cue.lines)))
        return encoded("".join(lines))

    return work


def _cues(lines: Sequence[str]) -> list[_Cue]:
    found, at = list[_Cue](), 0
    while at < len(lines):
        times = _TIMES.match(lines[at])
        at += 2
        if times is None:
            continue
        first = at
        while at < len(lines) and lines[at].strip() and not _TIMES.match(lines[at]):
            at += 2
        if at > first:
            found.append(_Cue(first, at, _seconds(times[1]), _seconds(times[2]), list(lines[first:at:2])))
    return found


def _seconds(time: str) -> float:
    total = 0.0
    for part in time.replace(",", ".").split(":"):
        total = 60 * total + float(part)
    return total


def _sentences(cues: Sequence[_Cue]) -> list[list[_Cue]]:
    """The cues, those together over which one sentence goes."""
    groups: list[list[_Cue]] = []
    for cue in cues:
        last = groups[-1] if groups else []
        goes_on = (
            0 < len(last) < _CUES
            and last[-1].plain
            and cue.plain
            and not _ENDED.search(last[-1].text)
            and 0 <= cue.start_s - last[-1].end_s <= _SECONDS
            and (not cue.text[:1].isupper() or last[-1].text.endswith(",") or cue.text.startswith("I "))
        )
        if goes_on:
            last.append(cue)
        else:
            groups.append([cue])
    return groups


def _marked(text: str, web: bool) -> tuple[str, list[str]]:
    """A cue with each of its marks as an element of XML, and what they were written as."""
    out, kept, at = list[str](), list[str](), 0
    opened: list[str] = []
    ends = Counter(name.lower() for name in re.findall(r"</([a-zA-Z]+)", text))  # of those that are still to come
    for found in _MARK.finditer(text):
        out.append(_escaped(text[at : found.start()], web))
        at, mark = found.end(), found[0]
        name = re.sub(r"[</>]", "", mark).split(".")[0].split(" ")[0].lower()
        ends[name] -= mark.startswith("</")
        if mark.startswith("</") and opened and opened[-1] == name:
            opened.pop()
            out.append("</m>")
        elif re.match(r"<[a-zA-Z]", mark) and ends[name] > 0:
            opened.append(name)
            out.append(f'<m n="{len(kept)}">')
            kept.append(mark)
        else:
            out.append(f'<x n="{len(kept)}"/>')
            kept.append(mark)
    out.append(_escaped(text[at:], web))
    out += ["</m>"] * len(opened)
    return "".join(out), kept


def _escaped(text: str, web: bool) -> str:
    return html.escape(html.unescape(text) if web else text, quote=False)


def _unmarked(marked: str, kept: Sequence[str], web: bool) -> str:
    out, opened = list[str](), list[str]()
    for part in re.split(r"(<[^>]*>)", marked):
        if found := re.fullmatch(r'<(m|x) n="(\d+)"/?>', part):
            out.append(kept[int(found[2])])
            if found[1] == "m":
                opened.append(re.split(r"[\s.>]", kept[int(found[2])][1:])[0])
        elif part == "</m>":
            out.append(f"</{opened.pop()}>")
        else:
            out.append(part if web else html.unescape(part))
    return "".join(out)


def _shared(text: str, group: Sequence[_Cue]) -> list[str]:
    """A sentence cut into the cues that it was said in, by how much each said, between words."""
    if len(group) == 1:
        return [text]
    whole = sum(len(cue.text) for cue in group)
    cuts, said = [0], 0
    places = [at for at in range(1, len(text)) if text[at] == " " or unspaced(text[at])]
    for cue in group[:-1]:
        said += len(cue.text)
        wanted = len(text) * said / whole
        there = [at for at in places if at > cuts[-1]] or [len(text)]
        cuts.append(min(there, key=lambda at: abs(at - wanted)))
    return [text[start:end].strip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def in_lines(text: str, count: int) -> list[str]:
    """A text in about equally long lines, at most so many. A text without spaces is cut between its characters."""
    if count > 1 and " " not in text.strip() and any(map(unspaced, text)):
        size = -(-len(text) // count)
        return [text[at : at + size] for at in range(0, len(text), size)]
    words = deque(text.split(" "))
    count = min(count, len(words), _LINES)
    lines: list[str] = []
    for number in range(count, 0, -1):
        room = len(" ".join(words)) / number
        line = words.popleft()
        while len(words) >= number and (number == 1 or len(line) + 1 + len(words[0]) / 2 <= room):
            line += f" {words.popleft()}"
        lines.append(line)
    return lines


def _write(lines: list[str], cue: _Cue, texts: Sequence[str]) -> None:
    """Puts a cue's new lines in the place of the old ones; an empty one would end it."""
    end = lines[cue.first + 1] if cue.first + 1 < len(lines) else "\n"
    inner = end.join(line for line in texts if line.strip())
    lines[cue.first] = inner
    for at in range(cue.first + 1, cue.end - 1):
        lines[at] = ""
