"""The report of `regard lineage` as one page of HTML that needs nothing else, in English and Chinese."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from regard.pictures import heatmap

from .chart import Words, chart, say
from .table import interval, spread

__all__ = ["page"]

Plain = Mapping[str, Any]


def page(report: Plain, *, language: str = "en") -> str:
    """The whole report; `language` is the one that it shows at first."""
    parts = [
        *_head(report["table"]),
        *_figures(report["table"]),
        *_apart(report["table"]),
        *_lengths(report["table"]),
        *_pictures(report["pictures"]),
        *_alignment(report.get("alignment")),
        *_costs(report["costs"]),
        *_beyond(report.get("extrapolation")),
        *_made(report["table"]),
    ]
    template = (files("regard.studies.lineage") / "report_page.html").read_text(encoding="utf-8")
    return template.replace("<!--LANGUAGE-->", language).replace("<!--BODY-->", "\n".join(parts))


# -- sections ----------------------------------------------------------------------------------------------------------


def _head(table: Plain) -> Iterator[str]:
    seeds = max(len(row["seeds"]) for row in table["families"])
    way = "–".join(filter(None, table["languages"])) or "—"
    search = table["search"]
    yield f"<header>{_both('The lineage compared', '谱系比较', 'h1')}"
    yield f'<button type="button" id="language">{say(("中文", "English"))}</button></header>'
    yield "<main>"
    yield _both(
        f"{len(table['families'])} families of sequence-to-sequence models, trained on one corpus ({way}) with equal "
        f"data, vocabulary ({table['tokens']:,} tokens at most) and time ({table['minutes']:g} minutes of batches "
        f"and updates each, {_threads(table, 'thread')}), and searched alike (beam {search['beam']}). All figures "
        f"are of {escape(table['set'])}, {table['lines']:,} lines, translated once by every run when its training "
        "had ended.",
        f"{len(table['families'])} 个序列到序列家族，在同一语料（{way}）上训练：数据相同，词表相同（至多 "
        f"{table['tokens']:,} 个词元），时间相同（批次与更新共 {table['minutes']:g} 分钟，"
        f"{_threads(table, '线程')}），搜索相同（束宽 {search['beam']}）。全部数字取自 {escape(table['set'])} 的 "
        f"{table['lines']:,} 行，由每个模型在训练结束时各译一次。",
    )
    yield _both(
        "Equal time is one fair way to compare and not the only one: what computes slowly here has seen less of the "
        "data, and sizes and settings are those of one recipe a family, not the best there are. "
        + (
            f"Each family has up to {seeds} runs that differ in their seed alone; how far these lie apart is part of "
            "every comparison below."
            if seeds > 1
            else "There is one run of each family, so how much another seed would change is not known."
        ),
        "时间相等只是一种公平，并非唯一的一种：在此算得慢的模型看到的数据较少；规模与设置取自每个家族的一份配方，"
        "未必最优。"
        + (
            f"每个家族至多有 {seeds} 次只差随机种子的训练；它们之间的差距计入下面的每个比较。"
            if seeds > 1
            else "每个家族只训练了一次，换一个种子会差多少，并不知道。"
        ),
    )


def _figures(table: Plain) -> Iterator[str]:
    yield _both("Figures", "数字", "h2")
    head: list[Words] = [
        ("family", "家族"),
        ("BLEU", "BLEU"),
        ("95 % over lines", "按行 95 %"),
        ("chrF", "chrF"),
        ("perplexity a token", "每词元困惑度"),
        ("parameters", "参数"),
        ("minutes", "分钟"),
        ("updates", "更新"),
        ("epochs", "轮"),
        ("target tokens/s", "目标词元/秒"),
        ("seeds", "种子"),
    ]
    rows = [
        [
            row["family"],
            spread(row.get("bleu")),
            interval(row.get("bleu")),
            spread(row.get("chrf")),
            spread(row.get("perplexity")),
            f"{row['parameters']:,}",
            f"{row['trained'] / 60:.1f}",
            f"{row['updates']:,.0f}",
            f"{row['epochs']:.0f}",
            f"{row['tokens_per_second']:,.0f}",
            str(len(row["seeds"])),
        ]
        for row in table["families"]
    ]
    yield _table(
        (
            "Means over seeds, in brackets the lowest and the highest. The interval is that of the choice of test "
            "lines (bootstrap), not of the seeds.",
            "跨种子的均值，括号内为最低与最高。区间出自测试行的选取（自助法），不含种子。",
        ),
        head,
        rows,
    )


def _apart(table: Plain) -> Iterator[str]:
    if not table["told_apart"]:
        return
    yield _both("What can be told apart, and what cannot", "哪些分得开，哪些分不开", "h2")
    unsure = [each["pair"] for each in table["told_apart"] if not each["apart"]]
    names = "; ".join(f"{one} / {other}" for one, other in unsure)
    yield _both(
        f"Not told apart by BLEU: {names}." if unsure else "Every pair is told apart by BLEU.",
        f"按 BLEU 分不开的：{names}。" if unsure else "按 BLEU，每一对都分得开。",
    )
    rows = [
        [
            " / ".join(each["pair"]),
            ", ".join(f"{difference:+.2f}" for difference in each["differences"]),
            ", ".join(f"{p:.3f}" for p in each["p"]),
            say(("yes", "是") if each["apart"] else ("no", "否")),
        ]
        for each in table["told_apart"]
    ]
    yield _table(
        (
            "Second minus first, at each seed. Told apart: the same one is ahead at every seed, each time with p "
            "below 0.05 (paired bootstrap over lines). With one seed this speaks of these two runs, not of the "
            "families.",
            "后者减前者，每个种子一个数。分得开：每个种子都是同一方领先，且每次 p 小于 0.05（按行配对自助法）。"
            "只有一个种子时，说的是这两次训练，而不是两个家族。",
        ),
        [("pair", "对"), ("BLEU", "BLEU"), ("p", "p"), ("told apart", "分得开")],
        rows,
        raw=3,
    )


def _lengths(table: Plain) -> Iterator[str]:
    groups = table["by_length"]["groups"]
    if len(groups) < 2:
        return
    yield _both("BLEU by the length of the source", "按源句长度的 BLEU", "h2")
    yield _both(
        "As Bahdanau et al. (2015) drew it in their figure 2: a model that squeezes the source into one vector loses "
        "long sentences first. Each point is a group of lines of like length; groups hold few lines, so their points "
        "are less sure than the table's figures.",
        "即 Bahdanau 等（2015）的图 2：把源句压成一个向量的模型最先丢掉长句。每个点是一组长度相近的行；各组行数不多，"
        "因此不如总表可靠。",
    )
    yield _drawn(
        "by-length",
        ("BLEU against words of the source", "BLEU 与源句词数"),
        [group["mean"] for group in groups],
        table["by_length"]["bleu"],
        ("words of the source (mean of the group)", "源句词数（组均值）"),
        ("BLEU", "BLEU"),
        [(f"{g['from']}–{g['to']} ({g['lines']})",) * 2 for g in groups],
    )
    if not (halves := table.get("by_halves")):
        return
    most, (few, many) = halves["up_to"], halves["lines"]
    yield _table(
        (
            "Whether BLEU falls with length: the longer half of the lines against the shorter. It does where the whole "
            "interval (95 %, bootstrap over lines) is below 0.",
            "BLEU 是否随长度下降：较长的一半与较短的一半相比。整个区间（95 %，按行自助法）都在 0 以下的，就是下降。",
        ),
        [
            ("family", "家族"),
            (f"up to {most} words ({few})", f"至多 {most} 词（{few}）"),
            (f"more ({many})", f"更多（{many}）"),
            ("difference", "差"),
            ("95 % over lines", "按行 95 %"),
        ],
        [
            [
                family,
                f"{half['shorter']:.2f}",
                f"{half['longer']:.2f}",
                f"{half['longer'] - half['shorter']:+.2f}",
                "{:+.2f} – {:+.2f}".format(*half["interval"]) if half["interval"] else "—",
            ]
            for family, half in halves["families"].items()
        ],
    )


def _pictures(shown: Sequence[Plain]) -> Iterator[str]:
    if not any(line["families"] for line in shown):
        return
    yield _both("Where they look", "它们看向哪里", "h2")
    yield _both(
        "The same sentences under every family with attention, each made to write the reference. A row is a target "
        "word and where the model looked while it wrote it; of several layers the one in the middle, heads averaged. "
        "What a model looks at is not all that it goes by.",
        "同样的句子，交给每个有注意力的家族，都令其写出参考译文。一行是一个目标词以及写它时所看之处；"
        "多层者取中间一层，各头平均。模型看向哪里，并不等于它依据什么。",
    )
    for line in shown:
        yield f"<h3>{escape(line['source'])}</h3><p class='soft'>{escape(line['reference'])}</p>"
        yield '<div class="scroll" tabindex="0" role="group"><div class="pictures">'
        for family, picture in line["families"].items():
            drawn = heatmap(picture["weights"], picture["rows"], picture["columns"], title=family)
            yield f"<figure>{drawn.img()}<figcaption>{escape(family)}</figcaption></figure>"
        yield "</div></div>"


def _alignment(rates: Sequence[Plain] | None) -> Iterator[str]:
    if not rates:
        return
    gold = escape(rates[0]["signature"].split("|links:")[0])
    yield _both("Alignment error rate", "对齐错误率", "h2")
    yield _both(
        f"Links read off attention against people's, {rates[0]['pairs']} pairs ({gold}). "
        "Lower is better. None of the models was trained to align.",
        f"从注意力读出的连线与人工连线相比，共 {rates[0]['pairs']} 对（{gold}）。越低越好。没有哪个模型学过对齐。",
    )
    rows = [
        [
            f"{each['family']}-{each['seed']}",
            f"{each['value']:.1f} %",
            interval(each),
        ]
        for each in rates
    ]
    yield _table(
        ("All layers, as `regard align` reads them by default.", "所有的层，按 regard align 的默认读法。"),
        [("run", "训练"), ("AER", "AER"), ("95 %", "95 %")],
        rows,
    )


def _costs(costs: Plain) -> Iterator[str]:
    yield _both("What a layer costs", "一层的代价", "h2")
    yield _both(
        "Two tables and a measurement. The first is Table 1 of Vaswani et al. (2017); the second are the rows that "
        "the lectures give (RNN, CNN, Transformer). Both leave the projections of attention out, 4 n d² products, "
        "which below n = 2 d are the larger part; the last line has them. The path O(log_k(n)) is that of dilated "
        "convolutions; plain ones have O(n/k).",
        "两张表与一次测量。第一张是 Vaswani 等（2017）的表 1；第二张是讲义给出的行（RNN、CNN、Transformer）。"
        "两者都未计注意力的投影（4 n d² 次乘法），而 n < 2 d 时它占大头；最后一行计入了投影。路径 O(log_k(n)) "
        "属于空洞卷积；普通卷积是 O(n/k)。",
    )
    growth = costs["growth"]
    rows = [
        [
            row["layer"],
            row["paper"] or "—",
            row["steps"],
            row["path"],
            row["lecture"] or "—",
            f"n^{growth[row['layer']]['n']:.2f}",
            f"d^{growth[row['layer']]['d']:.2f}",
        ]
        for row in costs["table"]
    ]
    by_n, by_d = costs["by_length"], costs["by_width"]
    yield _table(
        (
            f"k = {costs['kernel']} places of a convolution, r = {costs['radius']} neighbours to either side. "
            f"Measured growth: from {by_n['n'][-3]} to {by_n['n'][-1]} places at d = {by_n['d']}, and from "
            f"{by_d['d'][-3]} to {by_d['d'][-1]} features at n = {by_d['n']}.",
            f"卷积核 k = {costs['kernel']}，左右各 r = {costs['radius']} 个邻居。实测增长：d = {by_n['d']} 时 n 由 "
            f"{by_n['n'][-3]} 到 {by_n['n'][-1]}；n = {by_d['n']} 时 d 由 {by_d['d'][-3]} 到 {by_d['d'][-1]}。",
        ),
        [
            ("layer", "层"),
            ("paper, Table 1", "论文表 1"),
            ("steps", "顺序步"),
            ("path", "最长路径"),
            ("lectures", "讲义"),
            ("measured in n", "实测 n"),
            ("measured in d", "实测 d"),
        ],
        rows,
    )
    threads = costs["threads"]
    yield _both(
        f"Forward, one sequence, float32, {threads} thread{'s' if threads > 1 else ''} of this machine, the least of "
        "several passes. O() says how cost grows when sizes are large; at small sizes calling the layer costs more "
        "than computing.",
        f"前向，单个序列，float32，本机 {threads} 个线程，取多次之最小。O() 说的是规模大时如何增长；规模小时，"
        "调用层的开销大于计算。",
    )
    yield _drawn(
        "cost-n",
        (f"Seconds of a layer by n, d = {by_n['d']}", f"一层用时（秒）随 n，d = {by_n['d']}"),
        by_n["n"],
        by_n["seconds"],
        ("n, places", "n（位置数）"),
        ("seconds", "秒"),
        [(f"n = {n}",) * 2 for n in by_n["n"]],
        logarithmic=True,
    )
    yield _drawn(
        "cost-d",
        (f"Seconds of a layer by d, n = {by_d['n']}", f"一层用时（秒）随 d，n = {by_d['n']}"),
        by_d["d"],
        by_d["seconds"],
        ("d, features", "d（维度）"),
        ("seconds", "秒"),
        [(f"d = {d}",) * 2 for d in by_d["d"]],
        logarithmic=True,
    )


def _beyond(found: Plain | None) -> Iterator[str]:
    if not found or len(found["groups"]) < 2:
        return
    longest = found["longest"]
    yield _both("Longer than anything trained on", "比训练过的都长", "h2")
    yield _both(
        f"Small Transformers that differ in how a token knows its place alone, trained for {found['minutes']:g} "
        f"minutes each on pairs of at most {longest} words a side, and scored on longer ones too (right of the "
        "dashed line). One seed; few minutes; what is longer is harder for other reasons as well, so compare the "
        "schemes with each other.",
        f"几个小 Transformer，只在位置方案上不同，各训练 {found['minutes']:g} 分钟，训练句对每侧至多 {longest} 词；"
        "也在更长的句子上评分（虚线右侧）。只有一个种子，时间也短；长句难，还有别的原因，所以应在方案之间比较。",
    )
    groups = found["groups"]
    names: list[Words] = [(f"{g['from']}–{g['to']} ({g['lines']})",) * 2 for g in groups]
    for metric, title in (
        ("perplexity", ("Perplexity a token", "每词元困惑度")),
        ("bleu", ("BLEU, greedy", "BLEU，贪心")),
    ):
        yield _drawn(
            f"beyond-{metric}",
            (f"{title[0]} by the length of the source", f"{title[1]}，按源句长度"),
            [(g["from"] + g["to"]) / 2 for g in groups],
            {scheme: values[metric] for scheme, values in found["schemes"].items()},
            ("words of the source", "源句词数"),
            title,
            names,
            at=longest + 0.5,
        )


def _made(table: Plain) -> Iterator[str]:
    yield _both("How it was made", "如何得出", "h2")
    yield "<ul>"
    for metric, signature in table["signatures"].items():
        yield f"<li>{escape(metric)}: <code>{escape(signature)}</code></li>"
    yield _both(
        f"precision of training: {', '.join(table['precision'])}; time is wall-clock time of batches and updates, "
        "without validating, saving and scoring; a run that stops by the clock cannot be repeated bit for bit.",
        f"训练精度：{', '.join(table['precision'])}；时间是批次与更新的墙钟时间，不含验证、保存与评分；"
        "按时钟停止的训练不能逐位重现。",
        "li",
    )
    yield "</ul></main>"


# -- parts -------------------------------------------------------------------------------------------------------------


def _both(english: str, chinese: str, tag: str = "p") -> str:
    return say((english, chinese), tag)


def _table(caption: Words, head: Sequence[Words], rows: Sequence[Sequence[str]], raw: int = -1) -> str:
    """Scrolls in a box of its own; the column `raw` is HTML already."""
    names = "".join(f'<th scope="col">{say(words) if words[0] != words[1] else words[0]}</th>' for words in head)
    lines = [
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{cell if i == raw else escape(cell)}</td>" for i, cell in enumerate(row) if i)
        + "</tr>"
        for row in rows
    ]
    return (
        f'<div class="scroll" tabindex="0" role="group"><table><caption><span>{say(caption)}</span></caption>'
        f"<thead><tr>{names}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


def _drawn(
    name: str,
    title: Words,
    places: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    x: Words,
    y: Words,
    columns: Sequence[Words],
    *,
    logarithmic: bool = False,
    at: float | None = None,
) -> str:
    """A chart with its numbers as a table below it."""
    drawn = chart(places, lines, x=x, y=y, name=name, logarithmic=logarithmic, at=at)
    rows = [
        [line, *(f"{value:.3g}" if logarithmic else f"{value:.2f}" for value in values)]
        for line, values in lines.items()
    ]
    return (
        f'<figure><figcaption id="{name}">{say(title)}</figcaption>'
        f'<div class="scroll" tabindex="0" role="group">{drawn}</div></figure>'
        f"<details><summary>{say(('The same as numbers', '同样的内容，以数字表示'))}</summary>"
        f"{_table(title, [('line', '线'), *columns], rows)}</details>"
    )


def _threads(table: Plain, word: str) -> str:
    found = "/".join(map(str, table["threads"]))
    return f"{found} {word}" + ("s" if word == "thread" and found != "1" else "")
