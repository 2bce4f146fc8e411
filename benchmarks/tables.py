"""Results as tables of Markdown, as the benchmarks print them and the documents show them.

`python benchmarks/tables.py` writes them anew into every page of docs/ (and the READMEs) that has a place for them:

    <!-- table: decode -->
    …
    <!-- end -->

where the name is that of a file in benchmarks/results/; and every row of a table that links to one of these files and
has words in `figures.py`. What a file of an older benchmark cannot tell stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import ROWS

__all__ = ["decode_tables", "table", "train_step_tables"]

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LINK = re.compile(r"\]\(((?:\.\./)?benchmarks/results/(\w+)\.json)\)")
Table = dict[str, Any]
NAMES = {"regard": "Regard", "ctranslate2": "CTranslate2", "marian": "Marian", "huggingface": "Hugging Face"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells under a head."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def named(choice: str) -> str:
    """What a choice is called, with the system's own name first."""
    system, _, rest = choice.partition(" ")
    return f"{NAMES.get(system, system)} {rest}".strip()


def number(value: float | None, form: str = ",.0f") -> str:
    return "" if value is None else format(value, form)


def decode_tables(result: Table) -> list[str]:
    """Speeds and waits by setting; how many times as fast; quality; and the other parts that were measured."""
    made = []
    for setting, one in result.get("settings", {}).items():
        waits = any("p50" in row for row in one["systems"].values())
        best = {name for of in one["best"].values() for name in of.values()}
        rows = [
            [
                named(name) + (" (its best)" if name in best else ""),
                number(row["median"]),
                f"{row['least']:,.0f} to {row['most']:,.0f}",
                *([f"{row['p50']:.1f}, {row['p95']:.1f}"] if waits else []),
            ]
            for name, row in one["systems"].items()
        ]
        made.append(table([setting, "target tokens/s", "least to most", *(["ms: p50, p95"] if waits else [])], rows))
        heads = list(one["best"])
        if heads:
            rows = []
            for ours, times in one["regard_is_faster_by"].items():
                cells = ["; ".join(f"{times[head][key]:.2f}" for key in times[head]) for head in heads]
                rows.append([named(ours), *cells])
            what = "speed; p50; p95" if waits else "speed"
            made.append(table([f"times as fast ({what})", *(f"as {named(head)}" for head in heads)], rows))
    if rows := [
        [
            named(name),
            number(row["bleu"], ".2f"),
            f"{row['peak_bytes'] / 2**20:,.0f} MB",
            number(row.get("lines_as_by_default"), ".1%"),
        ]
        for name, row in result.get("quality", {}).items()
    ]:
        made.append(table(["", "BLEU", "memory", "lines as by default"], rows))
    for part in ("curves", "waiting", "constraints", "avx2"):
        if found := result.get(part):
            columns = list(dict.fromkeys(label for row in found.values() for label in row))
            rows = [
                [name, *(number(row.get(label), ".0%" if label == "kept" else ",.0f") for label in columns)]
                for name, row in found.items()
            ]
            made.append(table([f"{part}: target tokens/s", *map(named, columns)], rows))
    return made


def train_step_tables(result: Table) -> list[str]:
    """Speed, memory and use of the machine of each system, and how many times as fast Regard is."""
    ratios = result.get("regard_is_faster_by", {})
    rows = []
    for name, row in result["systems"].items():
        speed = row["target_tokens_per_second"]
        times = [f"{ratios[ours][name]['median']:.2f}" if name in ratios.get(ours, {}) else "" for ours in ratios]
        rows.append(
            [
                name,
                row["way"],
                number(speed["median"]),
                f"{speed['least']:,.0f} to {speed['most']:,.0f}",
                f"{row['peak_bytes']['median'] / 2**20:,.0f} MB",
                number(row["utilisation"], ".1%"),
                *times,
            ]
        )
    head = ["", "way", "target tokens/s", "least to most", "memory", "use", *(f"{ours} is" for ours in ratios)]
    return [table(head, rows)]


def cold_start_tables(result: Table) -> list[str]:
    """Seconds and memory of one line from nothing."""
    rows = [
        [named(name), f"{row['seconds']['median']:.2f} s", f"{row['peak_bytes'] / 2**20:,.0f} MB"]
        for name, row in result["systems"].items()
    ]
    return [table(["one line, from nothing", "seconds", "memory"], rows)]


def contended_tables(result: Table) -> list[str]:
    """Speed beside busy processes, and what it is of the fair share."""
    counts = list(dict.fromkeys(count for row in result["systems"].values() for count in row["beside"]))

    def cell(one: Table | None) -> str:
        return "" if one is None else f"{one['speed']:,.0f} ({one['share']:.0%})"

    rows = [
        [name, str(row["threads"]), *(cell(row["beside"].get(count)) for count in counts)]
        for name, row in result["systems"].items()
    ]
    return [table(["target tokens/s (of the fair share)", "threads", *(f"beside {count}" for count in counts)], rows)]


def default_tables(result: Table) -> list[str]:
    """The default against exact, and against the version whose default was float64."""
    rows = [
        [
            name,
            f"{row['parameters'] / 1e6:.1f} million",
            f"{row['seconds_by_default']:.1f} s",
            f"{row['seconds_exact']:.1f} s",
            f"{row['times_as_fast']:.1f}",
            *(
                [f"{before:.1f} s", f"{row['times_as_fast_as_before']:.1f}"]
                if (before := row["seconds_before"])
                else ["", ""]
            ),
            str(row["differing_lines"]),
        ]
        for name, row in result["bundles"].items()
    ]
    names = ["bundle", "parameters", "default", "exact", "times as fast", "default before", "times as fast"]
    return [table([*names, "lines that differ"], rows)]


def batch_independence_tables(result: Table) -> list[str]:
    """Lines that differ in any run, by precision."""
    rows = [[name, f"{mode['differing_lines']} of {result['lines']}"] for name, mode in result["modes"].items()]
    return [table(["precision", "lines that differ in any batch or order"], rows)]


def rotary_tables(result: Table) -> list[str]:
    """Speed of training with sinusoids and with rotary positions, in each precision."""
    kinds = [(kind, each) for kind, each in result.items() if kind in ("bfloat16", "float32")]
    rows = []
    for kind, ways in kinds:
        ratio = result["compiled_to_pytorch"][kind]
        medians = (number(way["median"]) for way in ways.values())
        rows.append([kind, *medians, f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"])
    return [table(["target tokens/s", *kinds[0][1], "the kernel is"], rows)]


def circumstances_line(result: Table) -> str:
    """The machine, the commit and the command behind the tables."""
    extras = [f"{result['threads']} threads"] if "threads" in result else []
    extras += [f"instructions {', '.join(result['instructions'])}"] if "instructions" in result else []
    return (
        f"{'; '.join([result['machine'], *extras])}. Commit {result.get('commit', 'unknown')}, {result['date']}: "
        f"`{result['command']}`."
    )


MAKERS: dict[str, Callable[[Table], list[str]]] = {
    "decode": decode_tables,
    "decode_small": decode_tables,
    "decode_avx2": decode_tables,
    "decode_amx": decode_tables,
    "train_step": train_step_tables,
    "train_step_avx2": train_step_tables,
    "train_step_epyc": train_step_tables,
    "cold_start": cold_start_tables,
    "cold_start_epyc": cold_start_tables,
    "contended": contended_tables,
    "default": default_tables,
    "batch_independence": batch_independence_tables,
    "rotary": rotary_tables,
}
"""By the name of a results file: its tables."""


def read(name: str) -> Table | None:
    """A results file, if it is there and no older than version 0.2, whose files name the processor's instructions."""
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    found: Table = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found if "instructions" in found else None


def with_tables(text: str) -> str:
    """A page with the tables of today's results in their places; a place without such results stays as it is."""

    def made(found: re.Match[str]) -> str:
        result = read(found[2])
        try:
            tables = [*MAKERS[found[2]](result), circumstances_line(result)] if result else []
        except KeyError:  # of an older benchmark
            tables = []
        joined = "\n\n".join(tables)
        return f"{found[1]}\n{joined}\n\n{found[3]}" if tables else found[0]

    return PLACE.sub(made, text)


def with_rows(text: str, chinese: bool) -> str:
    """A page with the rows that tell of a results file as today's results have them."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        link = LINK.search(line)
        result = read(link[2]) if line.startswith("| ") and link and link[2] in ROWS else None
        if result is None or link is None:
            continue
        try:
            what, figure = ROWS[link[2]](result, chinese)
        except (KeyError, ValueError, StopIteration):  # of an older benchmark
            continue
        start, end = figure.index("[["), figure.index("]]")
        cells = line.strip("| ").split(" | ")
        if len(cells) == 2:
            figure = f"{figure[:start]}[{figure[start + 2 : end]}]({link[1]}){figure[end + 2 :]}"
        else:
            figure = figure.replace("[[", "").replace("]]", "")
        lines[number] = f"| {' | '.join([what, figure, *cells[2:]])} |"
    return "\n".join(lines)


def main() -> int:
    for page in (*sorted((ROOT / "docs").glob("*.md")), *ROOT.glob("README*.md")):
        text = page.read_text("utf-8")
        if (new := with_rows(with_tables(text), ".zh." in page.name)) != text:
            page.write_text(new, "utf-8")
            print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
