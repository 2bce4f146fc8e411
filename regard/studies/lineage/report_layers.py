"""Two sections of the report's page: what a layer costs, and lengths beyond those that were trained on."""

from __future__ import annotations

from collections.abc import Iterator

from .html import Plain, chart, say, table


def costs(found: Plain) -> Iterator[str]:
    yield say("What a layer costs", "一层的代价", "h2")
    yield say(
        "Two tables and a measurement. The first is Table 1 of Vaswani et al. (2017); the second are the rows that "
        "the lectures give (RNN, CNN, Transformer). Both leave the projections of attention out, 4 n d² products, "
        "which below n = 2 d are the larger part; the last line has them. The path O(log_k(n)) is that of dilated "
        "convolutions; plain ones have O(n/k).",
        "两张表与一次测量。第一张是 Vaswani 等（2017）的表 1；第二张是讲义给出的行（RNN、CNN、Transformer）。"
        "两者都未计注意力的投影（4 n d² 次乘法），而 n < 2 d 时它占大头；最后一行计入了投影。路径 O(log_k(n)) "
        "属于空洞卷积；普通卷积是 O(n/k)。",
    )
    growth = found["growth"]
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
        for row in found["table"]
    ]
    by_n, by_d = found["by_length"], found["by_width"]
    yield table(
        (
            f"k = {found['kernel']} positions of a convolution, r = {found['radius']} neighbours to either side. "
            f"Measured growth: from {by_n['n'][-3]} to {by_n['n'][-1]} positions at d = {by_n['d']}, and from "
            f"{by_d['d'][-3]} to {by_d['d'][-1]} features at n = {by_d['n']}.",
            f"卷积核 k = {found['kernel']}，左右各 r = {found['radius']} 个邻居。实测增长：d = {by_n['d']} 时 n 由 "
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
    yield from _measured(found)


def _measured(found: Plain) -> Iterator[str]:
    threads, by_n, by_d = found["threads"], found["by_length"], found["by_width"]
    yield say(
        f"Forward, one sequence, float32, {threads} thread{'s' if threads > 1 else ''} of this machine, the least of "
        "several passes. O() says how cost grows when sizes are large; at small sizes calling the layer costs more "
        "than computing.",
        f"前向，单个序列，float32，本机 {threads} 个线程，取多次之最小。O() 说的是规模大时如何增长；规模小时，"
        "调用层的开销大于计算。",
    )
    yield chart(
        (f"Seconds of a layer by n, d = {by_n['d']}", f"一层用时（秒）随 n，d = {by_n['d']}"),
        by_n["n"],
        by_n["seconds"],
        (("n, positions", "n（位置数）"), ("seconds", "秒")),
        [f"n = {n}" for n in by_n["n"]],
        logarithmic=True,
    )
    yield chart(
        (f"Seconds of a layer by d, n = {by_d['n']}", f"一层用时（秒）随 d，n = {by_d['n']}"),
        by_d["d"],
        by_d["seconds"],
        (("d, features", "d（维度）"), ("seconds", "秒")),
        [f"d = {d}" for d in by_d["d"]],
        logarithmic=True,
    )


def beyond(found: Plain | None) -> Iterator[str]:
    if not found or len(found["groups"]) < 2:
        return
    longest = found["longest"]
    yield say("Longer than anything trained on", "比训练过的都长", "h2")
    yield say(
        f"Small Transformers that differ in how a token knows its position alone, trained for {found['minutes']:g} "
        f"minutes each on pairs of at most {longest} words a side, and scored on longer ones too (right of the "
        "dashed line). One seed; few minutes; what is longer is harder for other reasons as well, so compare the "
        "schemes with each other.",
        f"几个小 Transformer，只在位置方案上不同，各训练 {found['minutes']:g} 分钟，训练句对每侧至多 {longest} 词；"
        "也在更长的句子上评分（虚线右侧）。只有一个种子，时间也短；长句难，还有别的原因，所以应在方案之间比较。",
    )
    groups = found["groups"]
    names = [f"{g['from']}–{g['to']} ({g['lines']})" for g in groups]
    for metric, title in (
        ("perplexity", ("Perplexity a token", "每词元困惑度")),
        ("bleu", ("BLEU, greedy", "BLEU，贪心")),
    ):
        yield chart(
            (f"{title[0]} by the length of the source", f"{title[1]}，按源句长度"),
            [(g["from"] + g["to"]) / 2 for g in groups],
            {scheme: values[metric] for scheme, values in found["schemes"].items()},
            (("words of the source", "源句词数"), title),
            names,
            at=longest + 0.5,
        )
