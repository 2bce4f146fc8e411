"""The rows of the READMEs and of docs/figures*.md that tell of a results file: their words, from what it holds."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["ROWS"]

Table = dict[str, Any]
Row = tuple[str, str]
"""What was measured, and the figure; in the figure, [[…]] stands where the link to the file belongs."""
NAMES = {"batched-products": ("a plain loop's Transformer", "朴素循环的 Transformer")}
"""What the benchmarks' own systems are called here, in English and in Chinese."""
DEFAULT, ONE = "batch 32, beam 4", "one sentence, beam 4"


def megabytes(system: Table) -> str:
    """The most memory of a system."""
    return f"{system['peak_bytes'] / 2**20:.0f}"


def train_step(result: Table, chinese: bool) -> Row:
    systems, ratios = result["systems"], result["regard_is_faster_by"]
    speeds = {name: f"{row['target_tokens_per_second']['median']:,.0f}" for name, row in systems.items()}
    millions = systems["regard"]["parameters"] / 1e6
    least = {}
    for ours, others in ratios.items():
        name = min(others, key=lambda each: others[each]["median"])
        system, _, precision = name.partition(" ")
        said = NAMES.get(system, (system, system))[chinese]
        least[ours] = f"{others[name]['median']:.1f}", f"{said}, {precision.strip('()')}".strip(", ")
    (auto, its), (plain, other) = least["regard"], least["regard (float32)"]
    if chinese:
        return (
            f"训练，{millions * 100:,.0f} 万参数，{result['threads']} 个核，与其他系统同一次测量",
            f"[[每秒 {speeds['regard']} 个目标词元]]，是其中最快者（{its}）的 {auto} 倍；"
            f"float32 为 {speeds['regard (float32)']}，是 float32 中最快者（{other}）的 {plain} 倍",
        )
    return (
        f"Training, {millions:.1f} million parameters, {result['threads']} cores, in one run with the others",
        f"[[{speeds['regard']} target tokens/s]], {auto} times the quickest other ({its}); in float32 "
        f"{speeds['regard (float32)']}, {plain} times the quickest other in float32 ({other})",
    )


def decode(result: Table, chinese: bool) -> Row:
    one, single = result["settings"][DEFAULT], result["settings"][ONE]
    ours, theirs = one["systems"]["regard int8"], one["best"]["ctranslate2"]["median"]
    times = one["regard_is_faster_by"]["regard int8"]
    alone = single["regard_is_faster_by"]["regard int8"]["ctranslate2"]["p50"]
    other = {name: times[name]["median"] for name in ("marian", "huggingface") if name in times}
    quality = result.get("quality", {})
    mine, its = quality.get("regard int8"), quality.get(theirs)
    grown = "grown" in result["bundle"]
    size, setting = result["bundle"]["parameters"] / 1e6, theirs.removeprefix("ctranslate2 ")
    speed, ratio = f"{ours['median']:,.0f}", f"{times['ctranslate2']['median']:.1f}"
    names = {"marian": "Marian", "huggingface": "Hugging Face"}
    shape = " (a small model widened, which computes the same)" if grown else ""
    if chinese:
        shape = "小模型扩大到 base 形状，所算不变" if grown else "base 形状"
        more = "".join(f"，{names[name]} 的 {value:.1f} 倍" for name, value in other.items())
        judged = ""
        if mine and its:
            judged = (
                f"；BLEU 为 {mine['bleu']:.2f}，CTranslate2 为 {its['bleu']:.2f}；"
                f"内存 {megabytes(mine)} MB，CTranslate2 为 {megabytes(its)} MB"
            )
        return (
            f"翻译，{size * 100:,.0f} 万参数（{shape}），int8，批 32，束宽 4",
            f"[[每秒 {speed} 个目标词元]]，是 CTranslate2 所有设置中最快者（{setting}）的 {ratio} 倍{more}；"
            f"与 CTranslate2 相比：一次一句的用时（中位数）为其 1/{alone:.1f}{judged}",
        )
    more = "".join(f", {value:.1f} times {names[name]}'s" for name, value in other.items())
    judged = ""
    if mine and its:
        judged = (
            f"; BLEU {mine['bleu']:.2f}, CTranslate2's {its['bleu']:.2f}; "
            f"memory {megabytes(mine)} MB, CTranslate2's {megabytes(its)}"
        )
    return (
        f"Translating, {size:.0f} million parameters{shape}, int8, batches of 32, beam 4",
        f"[[{speed} target tokens/s]], {ratio} times CTranslate2's quickest of all settings ({setting}){more}; "
        f"one sentence at a time takes 1/{alone:.1f} of CTranslate2's time (median){judged}",
    )


def kill_and_resume(result: Table, chinese: bool) -> Row:
    kills, inside, same = result["kills"], result["kills_inside_a_save"], result["identical"]
    precision, threads = result["precision"], result["threads"]
    if chinese:
        said = "与从未中断的训练[[逐比特相同]]" if same else "与从未中断的训练[[不同]]"
        return f"在 {kills} 个随机时刻杀死（其中 {inside} 次正在保存）再继续，{precision}，{threads} 个线程", said
    said = "[[the same bits]]" if same else "[[other bits]]"
    return (
        f"Killed at {kills} random moments, {inside} of them inside a save, and resumed, "
        f"{precision} on {threads} threads",
        f"{said} as a run that was never stopped",
    )


def batch_independence(result: Table, chinese: bool) -> Row:
    count = max(mode["differing_lines"] for mode in result["modes"].values())
    lines, modes = result["lines"], list(result["modes"])
    if any(name not in ("float32", "bfloat16", "int8", "exact") for name in modes):
        raise KeyError("modes")  # a file of an older benchmark
    if chinese:
        return f"{lines:,} 个句子，{'、'.join(modes)}，批大小 1、7、32、128，原序和打乱", f"[[{count} 行不同]]"
    named = f"{', '.join(modes[:-1])} and {modes[-1]}" if len(modes) > 1 else modes[0]
    return (
        f"{lines:,} sentences in batches of 1, 7, 32 and 128, in order and shuffled, in {named}",
        f"[[{count} lines differ]]",
    )


def train_memory(result: Table, chinese: bool) -> Row:
    rows = [(one["regard_over_plain_bfloat16"], one["shape"]) for one in result["shapes"].values()]
    if chinese:
        said = "，".join(f"{share:.2f}（{s['layers']}+{s['layers']} 层、宽 {s['width']}）" for share, s in rows)
        return "32,000 词表时一步增加的内存，与朴素循环之比，均为 bfloat16", f"[[{said}]]"
    said = ", ".join(f"{share:.2f} ({s['layers']}+{s['layers']} layers of {s['width']})" for share, s in rows)
    return "Memory that a step adds with a vocabulary of 32,000, against a plain loop, both in bfloat16", f"[[{said}]]"


def contended(result: Table, chinese: bool) -> Row:
    rows = {name: row["beside"]["2"]["share"] for name, row in result["systems"].items()}
    mine = {kind: next(v for name, v in rows.items() if name.startswith(f"{kind}, regard")) for kind in ("training",)}
    found = [v for name, v in rows.items() if name.startswith("translating, regard")]
    decoding = f"{median(found):.0%}" if found else ""
    if chinese:
        return "两个核上另有两个满负荷进程时，保有应得份额", f"[[训练 {mine['training']:.0%}，翻译 {decoding}]]"
    return (
        "Share of what is due that is kept beside two busy processes on two cores",
        f"[[training {mine['training']:.0%}, translating {decoding}]]",
    )


ROWS: dict[str, Callable[[Table, bool], Row]] = {
    "train_step_epyc": train_step,
    "decode": decode,
    "kill_and_resume": kill_and_resume,
    "batch_independence": batch_independence,
    "train_memory": train_memory,
    "contended": contended,
}
