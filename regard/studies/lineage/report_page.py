"""The report of `regard lineage` as one page of HTML that needs nothing else, in English and Chinese."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from regard.errors import DataError
from regard.pictures import heatmap

from .html import LANGUAGES, Plain, Words, chart, say, table
from .report_layers import beyond, costs
from .table import interval, spread


def page(report: Plain, *, language: str = "en") -> str:
    """The whole report; `language` is the one that it shows at first. Raises DataError for one that it does not speak.

    Texts of the report may come from anybody: `regard.studies.lineage.html` escapes every one of them.
    """
    if language not in LANGUAGES:
        raise DataError(f"--language is {language}; the page speaks {' or '.join(LANGUAGES)}.")
    parts = [
        *_head(report["table"]),
        *_figures(report["table"]),
        *_apart(report["table"]),
        *_lengths(report["table"]),
        *_pictures(report["pictures"]),
        *_alignment(report.get("alignment")),
        *costs(report["costs"]),
        *beyond(report.get("extrapolation")),
        *_made(report["table"]),
    ]
    template = (files("regard.studies.lineage") / "report_page.html").read_text(encoding="utf-8")
    return template.replace("<!--LANGUAGE-->", language).replace("<!--BODY-->", "\n".join(parts))


# -- sections ----------------------------------------------------------------------------------------------------------


def _head(found: Plain) -> Iterator[str]:
    seeds = max(len(row["seeds"]) for row in found["families"])
    way = "–".join(filter(None, found["languages"])) or "—"
    search = found["search"]
    yield f"<header>{say('The lineage compared', '谱系比较', 'h1')}"
    yield f'<button type="button" id="language">{say("中文", "English", "span")}</button></header>'
    yield "<main>"
    yield say(
        f"{len(found['families'])} families of sequence-to-sequence models, trained on one corpus ({way}) with equal "
        f"data, vocabulary ({found['tokens']:,} tokens at most) and time ({found['minutes']:g} minutes of batches "
        f"and updates each, {_threads(found, 'thread')}), and searched alike (beam {search['beam']}). All figures "
        f"are of {found['set']}, {found['lines']:,} lines, translated once by every run when its training "
        "had ended.",
        f"{len(found['families'])} 个序列到序列家族，在同一语料（{way}）上训练：数据相同，词表相同（至多 "
        f"{found['tokens']:,} 个词元），时间相同（批次与更新共 {found['minutes']:g} 分钟，"
        f"{_threads(found, '线程')}），搜索相同（束宽 {search['beam']}）。全部数字取自 {found['set']} 的 "
        f"{found['lines']:,} 行，由每个模型在训练结束时各译一次。",
    )
    yield say(
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


def _figures(found: Plain) -> Iterator[str]:
    yield say("Figures", "数字", "h2")
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
        for row in found["families"]
    ]
    yield table(
        (
            "Means over seeds, in brackets the lowest and the highest. The interval is that of the choice of test "
            "lines (bootstrap), not of the seeds.",
            "跨种子的均值，括号内为最低与最高。区间出自测试行的选取（自助法），不含种子。",
        ),
        head,
        rows,
    )


def _apart(found: Plain) -> Iterator[str]:
    if not found["told_apart"]:
        return
    yield say("What can be told apart, and what cannot", "哪些分得开，哪些分不开", "h2")
    unsure = [each["pair"] for each in found["told_apart"] if not each["apart"]]
    names = "; ".join(f"{one} / {other}" for one, other in unsure)
    yield say(
        f"Not told apart by BLEU: {names}." if unsure else "Every pair is told apart by BLEU.",
        f"按 BLEU 分不开的：{names}。" if unsure else "按 BLEU，每一对都分得开。",
    )
    rows: list[list[str | Words]] = [
        [
            " / ".join(each["pair"]),
            ", ".join(f"{difference:+.2f}" for difference in each["differences"]),
            ", ".join(f"{p:.3f}" for p in each["p"]),
            ("yes", "是") if each["apart"] else ("no", "否"),
        ]
        for each in found["told_apart"]
    ]
    yield table(
        (
            "Second minus first, at each seed. Told apart: the same one is ahead at every seed, each time with p "
            "below 0.05 (paired bootstrap over lines). With one seed this speaks of these two runs, not of the "
            "families.",
            "后者减前者，每个种子一个数。分得开：每个种子都是同一方领先，且每次 p 小于 0.05（按行配对自助法）。"
            "只有一个种子时，说的是这两次训练，而不是两个家族。",
        ),
        [("pair", "对"), ("BLEU", "BLEU"), ("p", "p"), ("told apart", "分得开")],
        rows,
    )


def _lengths(found: Plain) -> Iterator[str]:
    groups = found["by_length"]["groups"]
    if len(groups) < 2:
        return
    yield say("BLEU by the length of the source", "按源句长度的 BLEU", "h2")
    yield say(
        "As Bahdanau et al. (2015) drew it in their figure 2: a model that squeezes the source into one vector loses "
        "long sentences first. Each point is a group of lines of like length; groups hold few lines, so their points "
        "are less sure than the table's figures.",
        "即 Bahdanau 等（2015）的图 2：把源句压成一个向量的模型最先丢掉长句。每个点是一组长度相近的行；各组行数不多，"
        "因此不如总表可靠。",
    )
    yield chart(
        ("BLEU against words of the source", "BLEU 与源句词数"),
        [group["mean"] for group in groups],
        found["by_length"]["bleu"],
        (("words of the source (mean of the group)", "源句词数（组均值）"), ("BLEU", "BLEU")),
        [f"{g['from']}–{g['to']} ({g['lines']})" for g in groups],
    )
    if not (halves := found.get("by_halves")):
        return
    most, (few, many) = halves["up_to"], halves["lines"]
    yield table(
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
    yield say("Where they look", "它们看向哪里", "h2")
    yield say(
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
    gold = rates[0]["signature"].split("|links:")[0]
    yield say("Alignment error rate", "对齐错误率", "h2")
    yield say(
        f"Links read off attention against people's, {rates[0]['pairs']} pairs ({gold}). "
        "Lower is better. None of the models was trained to align.",
        f"从注意力读出的连线与人工连线相比，共 {rates[0]['pairs']} 对（{gold}）。越低越好。没有哪个模型学过对齐。",
    )
    rows = [[f"{each['family']}-{each['seed']}", f"{each['value']:.1f} %", interval(each)] for each in rates]
    yield table(
        ("All layers, as `regard align` reads them by default.", "所有的层，按 regard align 的默认读法。"),
        [("run", "训练"), ("AER", "AER"), ("95 %", "95 %")],
        rows,
    )


def _made(found: Plain) -> Iterator[str]:
    yield say("How it was made", "如何得出", "h2")
    yield "<ul>"
    for metric, signature in found["signatures"].items():
        yield f"<li>{escape(metric)}: <code>{escape(signature)}</code></li>"
    yield say(
        f"precision of training: {', '.join(found['precision'])}; time is wall-clock time of batches and updates, "
        "without validating, saving and scoring; a run that stops by the clock cannot be repeated bit for bit.",
        f"训练精度：{', '.join(found['precision'])}；时间是批次与更新的墙钟时间，不含验证、保存与评分；"
        "按时钟停止的训练不能逐位重现。",
        "li",
    )
    yield "</ul></main>"


def _threads(found: Plain, word: str) -> str:
    count = "/".join(map(str, found["threads"]))
    return f"{count} {word}" + ("s" if word == "thread" and count != "1" else "")
