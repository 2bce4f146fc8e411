"""A student's folder: written anew with blanks or with answers, and the language that it is in."""

from __future__ import annotations

from pathlib import Path

from regard.errors import DataError

from .exercise import LANGUAGES, Exercise, exercises

_MARK = "README.md"

_README = {
    "en": """# Homework on attention

{count} exercises, {points} points. Each file holds one: what to do, the formula, where the lectures say it, and
functions whose body is `raise NotImplementedError`. Write the bodies; leave the names and the arguments as they are.
The numbers of the documents are those of docs/lectures in Regard.

| exercise | file | points |
|---|---|---|
{rows}

How to go on:

1. Open `{first}`, read it, and write its functions.
2. Check it from this folder: `regard homework check . {name}`
3. Read what is wrong, in words and with the smallest input that shows it; mend it and check again.
4. When all is done: `regard homework check .` (the last exercise trains a model, which takes most of the time).

Points are given check by check. Nothing is sent anywhere, and you may check as often as you like. A function may use
everything of PyTorch; exercises {plain} are plain Python.

The check runs your own code on your own machine, in a process with limits on time and memory. That guards against
mistakes, not against malice: who grades the code of strangers does so in a container.
""",
    "zh": """# 注意力作业

共 {count} 题，{points} 分。每个文件一题：要做什么、公式、出自讲义何处，以及待写的函数
（函数体为 `raise NotImplementedError`）。请写出函数体；函数名与参数不要改。文档编号与 Regard 的 docs/lectures 相同。

| 题目 | 文件 | 分数 |
|---|---|---|
{rows}

怎样做：

1. 打开 `{first}`，读一遍，写出其中的函数。
2. 在这个目录里检查：`regard homework check . {name}`
3. 读一读哪里错了：有文字说明，也有能看出错误的最小输入；改好再检查。
4. 全部做完之后：`regard homework check .`（最后一题要训练一个模型，大部分时间花在那里）。

分数按检查项给。任何内容都不会发送出去，想检查多少次都可以。函数可以使用 PyTorch 的一切；第 {plain} 题是纯 Python。

检查时，你自己的代码在你自己的机器上运行，放在限制时间与内存的进程里。这只能防止失误，不能防止恶意：
要给陌生人的代码评分，请在容器里进行。
""",
}
_ANSWERS = {
    "en": "# Model answers\n\n{count} exercises, {points} points, for teachers. Each file gets full points, as "
    "`regard homework check .` says so.\n\n| exercise | file | points |\n|---|---|---|\n{rows}\n",
    "zh": "# 参考答案\n\n共 {count} 题，{points} 分，供教师使用。每个文件都能得满分，"
    "可用 `regard homework check .` 验证。\n\n| 题目 | 文件 | 分数 |\n|---|---|---|\n{rows}\n",
}


def write(folder: str | Path, language: str = "en", *, answered: bool = False) -> list[Path]:
    """Write the exercises into a new or empty folder, with blanks or with model answers; returns the files.

    Raises DataError where the folder holds anything, so that no work is ever lost.
    """
    folder = Path(folder)
    if language not in LANGUAGES:
        raise DataError(f"--language is {language!r}; the exercises are in {' and '.join(LANGUAGES)}.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already and is not an empty folder; name a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / exercise.file for exercise in exercises().values()]
    for exercise, path in zip(exercises().values(), written, strict=True):
        path.write_text(exercise.written(language, answered=answered), "utf-8", newline="\n")
    readme = folder / _MARK
    readme.write_text(_readme(language, answered=answered), "utf-8", newline="\n")
    return [readme, *written]


def _readme(language: str, *, answered: bool) -> str:
    every = list(exercises().values())
    rows = "\n".join(f"| {e.texts[language].title} | `{e.file}` | {e.points} |" for e in every)
    plain = [str(e.number) for e in every if "torch" not in e.imports]
    joined = "、".join(plain) if language == "zh" else ", ".join(plain)
    facts = {"count": len(every), "points": sum(e.points for e in every), "rows": rows, "plain": joined}
    text = (_ANSWERS if answered else _README)[language]
    return text.format(**facts, first=every[0].file, name=every[0].name)


def language_of(folder: Path) -> str:
    """The language that the folder was written in, by its README; English where that says nothing."""
    try:
        first = (folder / _MARK).read_text("utf-8", errors="replace")[:200]
    except OSError:
        return "en"
    return "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in first) else "en"


def files_of(folder: Path, wanted: list[Exercise]) -> dict[str, Path]:
    """The files of these exercises that the folder holds, by the exercises' names."""
    found = {exercise.name: folder / exercise.file for exercise in wanted}
    return {name: path for name, path in found.items() if path.is_file()}
