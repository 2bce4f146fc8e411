"""The built-in corpus: dates, times, numbers and amounts as people write them in English, German, French and Chinese.

Every line is made from CLDR's words and number patterns (through Babel); nothing is downloaded. What is written is a
*value* (a moment, a number, an amount), so the right answer is known, and it is a function of the source line: styles
whose meaning depends on who wrote them (05/11/2026, a bare ¥) are left out.

Held-out values (years, minutes past the hour, the significant digits of numbers) occur in no training line of any
language, kind or direction, so a right answer there is a rule learned and not a line remembered.

Spaces: CLDR separates French thousands and the English AM/PM with U+202F and puts U+00A0 before a sign such as % or €.
Targets keep them exactly, since that is what a typesetter wants. People type the space bar, so every second source
that has such a space is written with an ordinary one instead, and `known` takes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from itertools import permutations
from random import Random
from typing import Any, Literal

from regard.errors import DataError, install
from regard.text.lines import tag

Split = Literal["train", "valid", "heldout"]
Kind = Literal["date", "time", "datetime", "number", "amount"]

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "zh": "Chinese"}
KINDS: tuple[Kind, ...] = ("date", "time", "datetime", "number", "amount")
DIRECTIONS = tuple(permutations(LANGUAGES, 2))
TAGS = tuple(tag(language) for language in LANGUAGES)

YEARS = range(1800, 2200)
DIGITS = 7  # of the integer part, at most
NAMED = ("EUR", "USD", "GBP", "CNY", "JPY")
SIGNED = ("EUR", "USD", "GBP", "CNY")  # ¥ is yen in English and yuan in Chinese, so yen are written by name

# CLDR's patterns, kept here because Babel's releases differ in how they join a date and a time. The one departure:
# Chinese sets the weekday off with a space, as letters and newspapers do.
DATE = {"en": "MMMM d, y", "de": "d. MMMM y", "fr": "d MMMM y", "zh": "y年M月d日"}
FULL = {"en": "EEEE, MMMM d, y", "de": "EEEE, d. MMMM y", "fr": "EEEE d MMMM y", "zh": "y年M月d日 EEEE"}
TIME = {"en": "h:mm\u202fa", "de": "HH:mm", "fr": "HH:mm", "zh": "ah:mm"}
WEEKDAY = "EEEE"
JOIN = {"en": " at ", "de": " um ", "fr": " à ", "zh": " "}


@dataclass(frozen=True)
class Example:
    """One line and its one right answer; the source begins with the target language's tag."""

    source: str
    target: str
    kind: Kind
    source_language: str
    target_language: str


@dataclass(frozen=True)
class Value:
    """What is written, apart from any language."""

    kind: Kind
    style: str
    moment: datetime = datetime(2000, 1, 1)
    number: Decimal = Decimal(0)
    currency: str = ""


def corpus(split: Split, *, per_cell: int, seed: int = 0) -> list[Example]:
    """`per_cell` lines of each of the 12 directions x 5 kinds, shuffled; the same for the same arguments.

    Lines of "valid" and "heldout" differ from one another within a cell. Raises DataError if Babel is not installed.
    """
    if split not in ("train", "valid", "heldout"):
        raise DataError(f'there is no split "{split}" of the built-in corpus; take train, valid or heldout.')
    examples: list[Example] = []
    for source, target in DIRECTIONS:
        for kind in KINDS:
            lines = _cell(split, kind, source, target, Random(f"{seed} {split} {kind} {source} {target}"))
            seen: set[str] = set()
            while len(seen) < per_cell:
                example = next(lines)
                if split == "train" or example.source not in seen:
                    examples.append(example)
                    seen.add(example.source if split != "train" else str(len(seen)))
    Random(f"{seed} {split}").shuffle(examples)
    return examples


def known(line: str) -> bool:
    """Whether a line (with its tag) has a form that the corpus can make, whatever its digits."""
    return unlike(line) is None


def unlike(line: str) -> str | None:
    """Why a line (with its tag) is unlike all training lines, in a sentence that shows the nearest form; else None."""
    start, _, text = line.partition(" ")
    if start not in TAGS:
        return f'it does not begin with one of the tags {", ".join(TAGS)} and a space (for example "<2fr> 3:05 PM").'
    text = typed(text)
    shapes = _shapes()
    shape = re.sub("[0-9]", "0", text)
    if shape not in shapes:
        near = get_close_matches(shape, shapes, n=1, cutoff=0.0)[0]
        return f'no training line is written like "{text}"; the nearest form is "{shapes[near].text}".'
    target = start[2:-1]
    if shapes[shape].languages == {target}:
        return f'"{text}" is {LANGUAGES[target]} already, and no training line stays in its language.'
    return _out_of_range(text, shapes[shape])


def characters() -> set[str]:
    """Every character that a line of the corpus, without its tag, can have."""
    return set("0123456789").union(*(text for language in LANGUAGES for _, text in _texts(language)))


def typed(text: str) -> str:
    """The text as a person types it: the space bar for CLDR's narrow and no-break spaces."""
    return text.replace("\u202f", " ").replace("\u00a0", " ")


# --- values -----------------------------------------------------------------------------------------------------------


def split_of(what: str, digits: str) -> Split:
    """The one split in which a year, a minute or a number's significant digits may occur (1/8 heldout, 1/16 valid)."""
    first = sha256(f"{what} {digits}".encode()).digest()[0]
    return "heldout" if first < 32 else "valid" if first < 48 else "train"


def significant(number: Decimal) -> str:
    """The digits of a number without leading and trailing zeros: those that 1.23 million, 123万 and 12.3% share."""
    return "".join(map(str, number.as_tuple().digits)).strip("0")


@cache
def _years(split: Split) -> list[int]:
    return [year for year in YEARS if split_of("year", str(year)) == split]


@cache
def _minutes(split: Split) -> list[int]:
    return [minute for minute in range(60) if split_of("minute", str(minute)) == split]


def _cell(split: Split, kind: Kind, source: str, target: str, random: Random) -> Iterator[Example]:
    while True:
        value = _draw(kind, split, random)
        text = write(value, source)
        if random.random() < 0.5:
            text = typed(text)
        yield Example(f"{tag(target)} {text}", write(value, target), kind, source, target)


def _draw(kind: Kind, split: Split, random: Random) -> Value:
    if kind == "number":
        return _draw_number(split, random)
    if kind == "amount":
        return _draw_amount(split, random)
    moment = datetime(random.choice(_years(split)), 1, 1) + timedelta(
        days=random.randrange(365), hours=random.randrange(24), minutes=random.choice(_minutes(split))
    )
    return Value(kind, random.choice(["plain", "weekday"]), moment)


def _draw_number(split: Split, random: Random) -> Value:
    style = random.choice(["plain", "percent", "million"])
    places = random.randrange(3)
    while True:
        # Three significant digits of a million are exact in every language: 12.3 million, 1230万.
        number = _random_decimal({"plain": DIGITS, "percent": 3, "million": 3 - places}[style], places, random)
        if style == "million" and random.random() < 0.25:
            number = 1 + number % 1  # French writes a million below two in the singular: too rare to learn otherwise
        if split_of("number", significant(number)) == split and (style != "million" or number > 1):
            return Value("number", style, number=number * 1_000_000 if style == "million" else number)


def _draw_amount(split: Split, random: Random) -> Value:
    style = random.choice(["sign", "name"])
    currency = random.choice(SIGNED if style == "sign" else NAMED)
    while True:
        number = _random_decimal(DIGITS, 0 if currency == "JPY" else 2, random)
        # Below two, currency names are singular in some languages: too rare here to be learned, so left out.
        if number >= 2 and split_of("number", significant(number)) == split:
            return Value("amount", style, number=number, currency=currency)


def _random_decimal(digits: int, places: int, random: Random) -> Decimal:
    """Uniform in its number of integer digits (1 to `digits`, no leading zero), then in the digits themselves."""
    length = random.randint(1, digits)
    whole = random.randrange(10 ** (length - 1), 10**length)
    return Decimal(whole) + Decimal(random.randrange(10**places)).scaleb(-places)


# --- writing ----------------------------------------------------------------------------------------------------------


def write(value: Value, language: str) -> str:
    """A value as it is written in a language."""
    if value.kind == "number":
        return _number(value, language)
    if value.kind == "amount":
        return _amount(value, language)
    return JOIN[language].join(_moment(value.moment, part, language) for part in _parts(value, language))


def _parts(value: Value, language: str) -> list[str]:
    """CLDR's patterns for the parts of a moment: a day, a time, or both."""
    day = FULL if value.style == "weekday" else DATE
    if value.kind == "date":
        return [day[language]]
    if value.kind == "datetime":
        return [day[language], TIME[language]]
    return [WEEKDAY, TIME[language]] if value.style == "weekday" else [TIME[language]]


def _moment(moment: datetime, pattern: str, language: str) -> str:
    return str(_babel("dates").format_datetime(moment, pattern, locale=language))


def _number(value: Value, language: str) -> str:
    numbers = _babel("numbers")
    match value.style:
        case "percent":
            return str(numbers.format_percent(value.number / 100, locale=language, decimal_quantization=False))
        case "million":
            # Chinese counts in 万 and 亿 in everyday writing too, so CLDR has no longer form for it.
            form = "short" if language == "zh" else "long"
            compact = numbers.format_compact_decimal
            return str(compact(value.number, format_type=form, locale=language, fraction_digits=2))
    return str(numbers.format_decimal(value.number, locale=language))


def _amount(value: Value, language: str) -> str:
    form = "name" if value.style == "name" else "standard"
    return str(_babel("numbers").format_currency(value.number, value.currency, locale=language, format_type=form))


@cache
def _babel(module: Literal["dates", "numbers"]) -> Any:
    """Babel's module; Babel is only needed to make the corpus."""
    try:
        import babel.dates
        import babel.numbers
    except ImportError as error:
        message = f"the built-in corpus is made with Babel, which is missing: {install('demo')}."
        raise DataError(message) from error
    return {"dates": babel.dates, "numbers": babel.numbers}[module]


# --- forms ------------------------------------------------------------------------------------------------------------


@dataclass
class Form:
    """A form of line: one text of it, and who writes it so."""

    text: str
    kind: Kind
    languages: set[str]


@cache
def _shapes() -> dict[str, Form]:
    """Every form that the corpus can make, each digit masked by 0."""
    shapes: dict[str, Form] = {}
    for language in LANGUAGES:
        for kind, text in _texts(language):
            text = typed(text)
            form = shapes.setdefault(re.sub("[0-9]", "0", text), Form(text, kind, set()))
            form.languages.add(language)
    return shapes


def _texts(language: str) -> Iterator[tuple[Kind, str]]:
    """At least one text of every form in a language, with one digit or another."""
    times = [write(Value("time", "plain", datetime(2026, 1, 1, hour, 5)), language) for hour in (3, 11, 15, 23)]
    weekdays = [_moment(datetime(2026, 1, day), WEEKDAY, language) for day in range(1, 8)]
    dates = [
        write(Value("date", style, datetime(day.year, day.month, day.day)), language)
        for day in _days()
        for style in ("plain", "weekday")
    ]
    yield from (("time", text) for text in times)
    yield from (("date", text) for text in dates)
    yield from (("time", day + JOIN[language] + time) for day in weekdays for time in times)
    yield from (("datetime", day + JOIN[language] + time) for day in dates for time in times)
    for value in _numbers():
        yield value.kind, write(value, language)


def _days() -> list[date]:
    """For each month and weekday, a day of one digit and a day of two."""
    found: dict[tuple[int, int, int], date] = {}
    for offset in range(365):
        day = date(2026, 1, 1) + timedelta(days=offset)
        found.setdefault((day.month, day.weekday(), len(str(day.day))), day)
    return list(found.values())


def _numbers() -> Iterator[Value]:
    """At least one value of every form of number and amount."""
    for millions in ("1.5", "1.56", "20", "200", "230"):  # 1.5 million is singular in French; 230 million are 2.3亿
        yield Value("number", "million", number=Decimal(millions) * 1_000_000)
    for digits in range(1, DIGITS + 1):
        whole = Decimal("2345678"[:digits])
        for places, part in enumerate(("", ".5", ".56")):
            number = Decimal(f"{whole}{part}")
            yield Value("number", "plain", number=number)
            if digits <= 3:
                yield Value("number", "percent", number=number)
            if digits + places <= 3:
                yield Value("number", "million", number=number * 1_000_000)
        for currency in NAMED:
            number = whole + (0 if currency == "JPY" else Decimal("0.56"))
            for style in ("sign", "name") if currency in SIGNED else ("name",):
                yield Value("amount", style, number=number, currency=currency)


def _out_of_range(text: str, form: Form) -> str | None:
    """Why the digits of a date or time are none that a calendar or clock shows."""
    if form.kind not in ("date", "time", "datetime"):
        return None
    for hour, minute in re.findall(r"([0-9]+):([0-9]+)", text):
        twelve = form.languages <= {"en", "zh"}
        if int(minute) > 59 or int(hour) > (12 if twelve else 23) or (twelve and int(hour) == 0):
            return f'"{hour}:{minute}" in "{text}" is no time of day.'
    rest = re.sub(r"[0-9]+:[0-9]+", "", text)
    for year in re.findall("[0-9]{4}", rest):
        if int(year) not in YEARS:
            return f"the year {year} is outside {YEARS.start} to {YEARS.stop - 1}, the years it was trained on."
    small = [int(digits) for digits in re.findall("(?<![0-9])[0-9]{1,2}(?![0-9])", rest)]
    if small and (max(small) > 31 or min(small) < 1 or (form.languages == {"zh"} and small[0] > 12)):
        return f'there is no such day as in "{text}".'
    return None
