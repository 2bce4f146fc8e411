"""A line into its sentences, a sentence that is still too long into parts, and where words stand, all by rules.

Nothing is ever lost:

    "".join(split_sentences(text)) == text

A sentence ends at a full stop, a question or an exclamation mark (with the brackets and quotes that close behind it) if
space follows and what comes next does not begin in lower case; the stops of Chinese and Japanese need no space. A
full stop behind an abbreviation, an initial, a number that opens the sentence or an ordinal ends none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

_WIDE = "。！？｡︒"
_STOPS = ".!?…‥‽؟۔।॥։።។"
_CLOSING = "\"'”’»›)\\]}」』）】》〉］｝"
_END = re.compile(
    rf"[{_WIDE}][{_WIDE}…!?]*[{_CLOSING}]*\s*"  # no space needed
    rf"|(?<![{_STOPS}])(?P<stop>[{_STOPS}]+)(?:[{_CLOSING}«‹“‘]|\s(?=[»›]))*\s+"  # « and “ close in German
    r"|\n\s*"
)
_WORD = re.compile(r"[^\s\"'“”‘’«»„‚(\[{]*\Z")
_NOT_OPENING = re.compile(r"[^\s\"'“”‘’«»‹›„‚¿¡(\[{<*_#–—-]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_COUNTING = re.compile(r"\(?(?:\d{1,3}|[ivxIVX]{1,4}|[A-Za-z])")
_ORDINAL = re.compile(r"\d{1,2}")

# Abbreviations that something follows as a rule; those that may as well end a sentence ("etc.") are left out.
_EVERYWHERE = "dr prof mr mrs ms st sr jr mme mlle vs cf bzw al ed eds"
_ABBREVIATIONS = {
    "en": "gen col lt capt sgt cmdr rev hon sen rep gov pres messrs mt ft approx dept est jan feb mar apr aug sept oct "
    "nov dec e.g i.e",
    "de": "hr fr hrn ing dipl phil med jur rer nat ca evtl ggf inkl exkl einschl vgl sog u.a z.b d.h bspw max mio mrd "
    "tel bd hrsg geb gest verh jan feb apr aug sept okt nov dez",
    "fr": "mm mmes mgr env av apr ex c.-à-d janv févr avr juil sept oct nov déc",
    "es": "sra srta dña ud uds gral p.ej aprox avda",
    "it": "sig dott ing avv arch sig.ra",
    "pt": "sra dra exmo eng aprox",
    "nl": "dhr mevr mw drs ir ing bijv ca d.w.z m.b.t",
    "cs": "např tzv tj resp ing mgr judr mudr",
    "pl": "np tzw tj inż mgr ul ks św",
    "sv": "t.ex bl.a d.v.s ca",
    "ro": "dl dna",
}
# These are abbreviations before a number only: "no. 5", but "He said no."
_COUNTED = frozenset("no nr núm č nos pp pag pág págs blz vol fig art abs kap cap chap ch sec eq str kl s".split(" "))  # noqa: SIM905
_KNOWN = {code: frozenset(f"{_EVERYWHERE} {words}".split(" ")) for code, words in {"": "", **_ABBREVIATIONS}.items()}
_WITH_ORDINALS = ("de", "cs", "sk", "da", "no", "nb", "nn", "fi", "hu", "et", "lv", "hr", "sl", "sr", "pl", "is", "tr")

_CLAUSE = re.compile(rf".+?(?:[,;:،؛–—][{_CLOSING}]*\s+|[，；：、﹐﹔—][{_CLOSING}]*\s*|\Z)", re.DOTALL)
_SPACED = re.compile(r"\s*\S+\s*")


def split_sentences(text: str, language: str = "") -> list[str]:
    """The sentences of a text, each with the space behind it; the first also has the space before it.

    `language` is a code ("de", "pt-BR"): it chooses the abbreviations. A text without an end inside is one sentence.
    """
    language = language.partition("-")[0]
    found, start = [], 0
    for end in _END.finditer(text):
        if end.end() < len(text) and text[start : end.start()].strip() and _ends(text, start, end, language):
            found.append(text[start : end.end()])
            start = end.end()
    return [*found, text[start:]] if start < len(text) else found


def split_long(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts that fit, as long as can be: cut behind clause marks, else between words, else between characters.

    A single character is never cut, whether it fits or not. The parts join to the sentence.
    """
    return list(_parts(sentence, fits, [_CLAUSE.findall, _spaced, _characters]))


def unspaced(character: str) -> bool:
    """Whether a character is of a script without spaces between words: Chinese, Japanese, their marks; not Hangul."""
    return bool(character) and unicodedata.east_asian_width(character) in "WF" and not "\uac00" <= character <= "\ud7a3"


def _ends(text: str, start: int, end: re.Match[str], language: str) -> bool:
    """Whether a sentence that begins at `start` really ends at this candidate."""
    stop = end["stop"]
    if stop is None:
        return True
    following = _NOT_OPENING.search(text, end.end())
    if following and following[0].islower():
        return False
    if stop != ".":
        return True
    found = _WORD.search(text[max(start, end.start() - 40) : end.start()])
    word = found[0] if found else ""
    if word.lower() in _KNOWN.get(language, _KNOWN[""]) or _INITIALS.fullmatch(word):
        return False
    if word.lower() in _COUNTED and following and following[0].isdigit():
        return False
    opens = not text[start : end.start() - len(word)].strip()
    return not (opens and _COUNTING.fullmatch(word)) and not (language in _WITH_ORDINALS and _ORDINAL.fullmatch(word))


def _parts(text: str, fits: Callable[[str], bool], ways: Sequence[Callable[[str], list[str]]]) -> Iterator[str]:
    if fits(text) or not ways:
        yield text
        return
    way, *finer = ways
    units, start = way(text), 0
    while start < len(units):
        if count := _most(units, start, fits):
            yield "".join(units[start : start + count])
        else:
            yield from _parts(units[start], fits, finer)
        start += max(count, 1)


def _most(units: Sequence[str], start: int, fits: Callable[[str], bool]) -> int:
    """How many units from `start` on fit: by doubling and halving, so that a text much too long is never looked at
    whole."""
    fitting, beyond = 0, 1
    while start + beyond <= len(units) and fits("".join(units[start : start + beyond])):
        fitting, beyond = beyond, 2 * beyond
    beyond = min(beyond, len(units) - start + 1)
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if fits("".join(units[start : start + middle])):
            fitting = middle
        else:
            beyond = middle
    return fitting


def _spaced(text: str) -> list[str]:
    # On white space alone the pattern would look for a word from each character on.
    return _SPACED.findall(text) if text.strip() else [text]


def _characters(text: str) -> list[str]:
    """Characters with the marks that belong to them: accents, joined emoji, variation selectors."""
    starts = [
        i
        for i, character in enumerate(text)
        if i == 0 or not (unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf") or _in_emoji(text, i))
    ]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


# -- words, for showing which one is meant, not for a model to read ----------------------------------------------------

# Marks that do not part a word: between letters, or between digits.
_WITHIN = {"'": "L", "\u2019": "L", "-": "L", "\u2010": "L", ".": "N", ",": "N", ":": "N"}
_JOINERS = {"\u200c", "\u200d"}


def words(line: str) -> list[tuple[int, int]]:
    """The first character of each word and the one behind its last, in any script.

    A word is a run of letters and digits (*don't*, *two-year* and *3.5* are one), any other sign is one by itself, and
    so is each character of a script without spaces between words (see `unspaced`). Accents and the like, joiners and
    the parts of one emoji stay with what they follow; spaces belong to no word.
    """
    found: list[tuple[int, int]] = []
    running = ""  # the category of what the last word may go on with; "": only with what belongs to its last character
    for position, character in enumerate(line):
        kind = unicodedata.category(character)[0]
        touches = bool(found) and found[-1][1] == position
        if touches and (kind == "M" or character in _JOINERS or _in_emoji(line, position)):
            found[-1] = (found[-1][0], position + 1)
            continue
        if kind in "ZC":
            running = ""
            continue
        letter = kind in "LN" and not unspaced(character)
        following = line[position + 1 : position + 2] or " "
        within = _WITHIN.get(character) == running == unicodedata.category(following)[0]
        if touches and running and (letter or within):
            found[-1] = (found[-1][0], position + 1)
            running = kind if letter else running
        else:
            found.append((position, position + 1))
            running = kind if letter else ""
    return found


def _in_emoji(text: str, position: int) -> bool:
    """Whether the character belongs to the emoji before it: a skin tone, or what a joiner joins."""
    return "\U0001f3fb" <= text[position] <= "\U0001f3ff" or text[position - 1] == "\u200d"
