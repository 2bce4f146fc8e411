"""Make the pages of docs/lectures anew from their tables and from the lectures themselves: `python tools/lectures.py`.

The pictures and numbers are made by
`regard lecture all --json --kind svg --out docs/lectures/pictures > docs/lectures/numbers.json`; those of trained
models by the commands that the page of them names.
"""

from __future__ import annotations

import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from regard.studies.homework.exercise import exercises
from regard.studies.lectures.every import LECTURES, about
from regard.studies.lectures.labels import label, said
from regard.studies.lectures.trained import TRAINED

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "lectures"
SHOWN = ROOT / "regard" / "studies" / "lectures"
RESULTS = ROOT / "results" / "lectures"
LANGUAGES = ("en", "zh")
_MADE = "<!-- made by `python tools/lectures.py` -->\n"


def tables(name: str) -> Any:
    """One of the tables, of docs/lectures or of what the lectures themselves show."""
    own = PLACE / f"{name}.toml"
    return tomllib.loads((own if own.exists() else SHOWN / own.name).read_text("utf-8"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _quoted(text: str) -> str:
    """What a document prints: Chinese in its quotation marks, formulas as they were extracted."""
    return f"`{text.replace('|', chr(92) + '|')}`" if "\\" in text else f"「{_cell(text)}」"


def _code(places: list[str]) -> str:
    return ", ".join(f"[`{place}`](../../../{place.partition(':')[0]})" for place in places)


def function_of(name: str) -> str:
    """A lecture's function, as "path:symbol"."""
    function = {**LECTURES, **TRAINED}[name]
    return f"{function.__module__.replace('.', '/')}.py:{function.__name__}"


def shown(value: Any) -> str:
    """A number with four digits; what only rounding makes is 0."""
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, str):
        return _cell(value)
    return "0" if abs(value) < 1e-12 else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def numbers_of(numbers: dict[str, Any], language: str) -> str:
    """The rows of a table of numbers."""
    cells = ((label(key, language), shown(_in(value, language))) for key, value in numbers.items())
    return "".join(f"| {_cell(key)} | {value} |\n" for key, value in cells)


def _in(value: Any, language: str) -> Any:
    return said(value, language) if isinstance(value, str) else value


def lectures_page(language: str) -> str:
    """Every lecture: what it shows, its code, its picture."""
    words = tables("lectures")["words"][language]
    parts, numbers = [words["lectures"]], json.loads((PLACE / "numbers.json").read_text("utf-8"))
    for name in LECTURES:
        code = f"{words['code']}: {_code([function_of(name)])}"
        rows = numbers_of(numbers[name], language)
        table = f"{words['number_heads']}{rows}"
        parts.append(f"## {name}\n\n{about(name, language)}\n\n{code}\n\n![{name}](../pictures/{name}.svg)\n\n{table}")
    return _MADE + "\n".join(parts)


def models_page(language: str) -> str:
    """Every figure of a trained model: how it is made, its picture and numbers where the model has been trained."""
    table = tables("models")
    words, parts = table["words"][language], [table["words"][language]["page"]]
    for figure in table["figure"]:
        name = figure["name"]
        says = about(name, language)
        made = f"{words['code']}: {_code([function_of(name)])}; {words['recipe']}: {_code([figure['recipe']])}"
        command = (
            f"regard lecture {name} --bundle {figure['run']}/bundle --out docs/lectures/pictures --json \\\n"
            f"    > results/lectures/{name}.json"
        )
        parts.append(f"## {name}\n\n{says}\n\n{made}\n\n```sh\n{command}\n```\n")
        if not (RESULTS / f"{name}.json").exists():
            parts.append(f"{words['later']}\n")
            continue
        numbers = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))[name]
        rows = numbers_of(numbers, language)
        parts.append(
            f"![{name}](../pictures/{name}.svg)\n\n{figure['seen'][language]}\n\n{words['number_heads']}{rows}"
        )
    return _MADE + "\n".join(parts)


def formulas_page(language: str) -> str:
    """Every formula and figure, with the code that it is."""
    words = tables("lectures")["words"][language]
    parts = [words["formulas"]]
    for group in tables("formulas")["group"]:
        rows = []
        for row in group["rows"]:
            lecture = f"[{row['lecture']}](lectures.md#{row['lecture']})" if "lecture" in row else ""
            model = f"[{row['model']}](models.md#{row['model']})" if "model" in row else ""
            documents = ", ".join(map(str, row["documents"]))
            line = f"<br>`{row['line'].replace('|', chr(92) + '|')}`" if "line" in row else ""
            code = _code(row["code"]) + line
            rows.append(f"| {documents} | {_cell(row['form'])} | {row[language]} | {code} | {lecture or model} |\n")
        parts.append(f"## {group[language]}\n\n{words['formula_heads']}{''.join(rows)}")
    return _MADE + "\n".join(parts)


def errata_page(language: str) -> str:
    """Every slip with its right form."""
    words = tables("lectures")["words"][language]
    english, rows = language == "en", []
    for slip in tables("errata")["slip"]:
        quote = _quoted(slip["quote"])
        printed = f"{quote}<br>{_cell(slip['printed'])}" if english else quote
        right = slip["right"] if english else slip["right_zh"]
        cells = [slip["document"], f"「{_cell(slip['slide'])}」", printed, _cell(right), _cell(slip[language])]
        rows.append(f"| {' | '.join(map(str, cells))} | `{slip['id']}` |\n")
    return f"{_MADE}{words['errata']}\n{words['slip_heads']}{''.join(rows)}"


def _of_lecture(name: str) -> str:
    """The code of a lecture's first formula, or its own function."""
    rows = (row for group in tables("formulas")["group"] for row in group["rows"])
    first = next((row["code"][0] for row in rows if name in (row.get("lecture"), row.get("model"))), "")
    return first or function_of(name)


def _slide(table: Any, slide: Any, language: str) -> list[str]:
    """The cells of a slide, without its gloss."""
    cells = [_quoted(re.sub(r"#+ |[*][*]|[$][$]", "", slide["zh"]))]
    if "none" in slide:
        return [
            *cells,
            f"{table['words'][language]['nothing']}: {table['reasons'][slide['none']][language]}",
            "",
            "",
            "",
        ]
    names = slide["see"]
    links = [f"[{n}]({'models' if n in TRAINED else 'lectures'}.md#{n})" for n in names]
    tests = list(dict.fromkeys(f"tests/studies/{table['tests'][n]}" for n in names))
    practised = [e.name for e in exercises().values() if {*e.lectures} & {*names}]
    code = slide.get("code") or _of_lecture(names[0])
    return [*cells, ", ".join(links), _code([code]), _code(tests), ", ".join(f"`{e}`" for e in practised)]


def slides_page(language: str) -> str:
    """Every slide of the documents, with its lecture, code, test and exercise."""
    table = tables("slides")
    words, parts = table["words"][language], [table["words"][language]["page"]]
    for document in table["document"]:
        rows = []
        for slide in document["slides"]:
            cells = _slide(table, slide, language)
            if language == "en":
                cells.insert(1, _cell(slide["en"]))
            rows.append(f"| {' | '.join(cells)} |\n")
        parts.append(f"## {table['documents'][str(document['number'])][language]}\n\n{words['heads']}{''.join(rows)}")
    return _MADE + "\n".join(parts)


def measured() -> str:
    """What the lecture "paper-tables" puts beside the paper's figures, of the files of results."""
    table = "benchmarks/results/table3.json"
    small = json.loads((ROOT / table).read_text("utf-8"))
    rows = {}
    for name, found in small["table"].items():
        of = {metric: found[metric] for metric in ("perplexity", "bleu")}
        rows[name] = {m: (v if name == "base" else v["difference"])["mean"] for m, v in of.items()}
    scores = {}
    for name, (folder, metric) in {
        "BLEU on Multi30k, en-de, test": ("multi30k-en-de/transformer", "bleu"),
        "F1 on the Penn Treebank's sample, test": ("parse-ptb-sample/small", "f1"),
        "F1 on CRAFT, test": ("parse-craft/small", "f1"),
    }.items():
        file = f"results/{folder}/results.json"
        [test] = [s for s in json.loads((ROOT / file).read_text("utf-8"))["scores"] if s["set"].startswith("test")]
        scores[name] = {"value": round(test["scores"][metric]["value"], 2), "file": file}
    about_table = {"file": table, "command": small["command"], "rows": rows}
    return json.dumps({"table3": about_table, "scores": scores}, indent=1, ensure_ascii=False) + "\n"


def animation() -> str:
    """A translation that was recorded, as an SVG that moves by itself: each token, and where it looked."""
    kept = json.loads((ROOT / "regard" / "studies" / "lectures" / "recorded.json").read_text("utf-8"))
    source, steps = kept["source"], kept["steps"]
    across, down, seconds = 860 / len(source), 860 / len(steps), 1.1
    whole = seconds * (len(steps) + 2)

    def text(x: float, y: int, said: str, inside: str = "") -> str:
        return f'<text x="{x:.0f}" y="{y}">{html.escape(said)}{inside}</text>'

    def shown(start: float, end: float) -> str:
        times = f"0;{start / whole:.4f};{end / whole:.4f}"
        return (
            f'<animate attributeName="opacity" calcMode="discrete" dur="{whole:.1f}s" repeatCount="indefinite" '
            f'values="0;1;0" keyTimes="{times}"/>'
        )

    parts = [text(20 + (s + 0.5) * across, 40, token) for s, token in enumerate(source)]
    for t, step in enumerate(steps):
        x, start = 20 + (t + 0.5) * down, seconds * (t + 0.5)
        parts.append(text(x, 245, step["token"], shown(start, whole - 0.1)))
        lines = "".join(
            f'<path d="M{x:.0f},224L{20 + (s + 0.5) * across:.0f},54" stroke-width="{1 + 11 * weight:.1f}" '
            f'stroke-opacity="{0.15 + 0.85 * weight:.2f}"/>'
            for s, weight in enumerate(step["attention"])
            if weight > 0.02
        )
        parts.append(f"<g>{shown(start, start + seconds)}{lines}</g>")
    style = "text{font:17px sans-serif;text-anchor:middle;fill:#1d2230}path{stroke:#1f5fbf;stroke-linecap:round}"
    title = html.escape(f"{kept['line']} {kept['translation']}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 270"><title>{title}</title><style>{style}</style>'
        f'<rect width="900" height="270" rx="14" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


ANIMATION = ROOT / "docs" / "pictures" / "lecture-decoding.svg"
MEASURED = ROOT / "regard" / "studies" / "lectures" / "measured.json"
PAGES = {
    "lectures": lectures_page,
    "models": models_page,
    "formulas": formulas_page,
    "slides": slides_page,
    "errata": errata_page,
}

if __name__ == "__main__":
    MEASURED.write_text(measured(), "utf-8")
    ANIMATION.write_text(animation(), "utf-8")
    for spoken in LANGUAGES:
        (PLACE / spoken).mkdir(exist_ok=True)
        for page, make in PAGES.items():
            (PLACE / spoken / f"{page}.md").write_text(make(spoken), "utf-8")
