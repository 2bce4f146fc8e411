"""The rows of the READMEs and of docs/figures*.md that tell of a results file: their words, from what it holds."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["ROWS"]

Table = dict[str, Any]
Row = tuple[str, str]
"""What was measured, and the figure; in the figure, [[…]] stands where the link to the file belongs."""
DEFAULT, ONE = "batch 32, beam 4", "one sentence, beam 4"


def train_step(result: Table, chinese: bool) -> Row:
    systems, ratios = result["systems"], result["regard_is_faster_by"]
    speeds = {name: f"{row['target_tokens_per_second']['median']:,.0f}" for name, row in systems.items()}
    millions = systems["regard"]["parameters"] / 1e6
    least = {}
    for ours, others in ratios.items():
        name = min(others, key=lambda each: others[each]["median"])
        least[ours] = f"{others[name]['median']:.1f}", name
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
    if chinese:
        more = "".join(f"，{names[name]} 的 {value:.1f} 倍" for name, value in other.items())
        judged = ""
        if mine and its:
            judged = (
                f"；BLEU {mine['bleu']:.2f} 对 {its['bleu']:.2f}，"
                f"内存 {mine['peak_bytes'] >> 20} MB 对 {its['peak_bytes'] >> 20} MB"
            )
        return (
            f"翻译，{size * 100:,.0f} 万参数（base 形状{'，由小模型扩大' if grown else ''}），int8，批 32，束宽 4",
            f"[[每秒 {speed} 个目标词元]]，是 CTranslate2 所有设置中最快者（{setting}）的 {ratio} 倍{more}；"
            f"一次一句为其 {alone:.1f} 倍{judged}",
        )
    more = "".join(f", {value:.1f} times {names[name]}'s" for name, value in other.items())
    judged = ""
    if mine and its:
        judged = (
            f"; its BLEU is {its['bleu']:.2f} and ours {mine['bleu']:.2f}, "
            f"its memory {its['peak_bytes'] >> 20} MB and ours {mine['peak_bytes'] >> 20}"
        )
    return (
        f"Translating, {size:.0f} million parameters{', a smaller model grown' if grown else ''}, "
        "int8, batches of 32, beam 4",
        f"[[{speed} target tokens/s]], {ratio} times CTranslate2's quickest of all settings ({setting}){more}; "
        f"one sentence at a time {alone:.1f} times{judged}",
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
    shares = {name: one["regard_over_plain_bfloat16"] for name, one in result["shapes"].items()}
    said = ", ".join(f"{share:.2f} ({name})" for name, share in shares.items())
    if chinese:
        return "32,000 词表时一步增加的内存，与朴素循环之比，bfloat16", f"[[{said}]]"
    return "Memory that a step adds at 32,000 tokens, against a plain loop, bfloat16", f"[[{said}]]"


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
    "train_step": train_step,
    "decode": decode,
    "kill_and_resume": kill_and_resume,
    "batch_independence": batch_independence,
    "train_memory": train_memory,
    "contended": contended,
}
