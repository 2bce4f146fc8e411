"""The sentences of the check that belong to no exercise, in both languages."""

from __future__ import annotations

from .exercise import Said

LINE = Said(" (line {line} of your file)", "（你的文件第 {line} 行）")
BOTH = Said("Two things together explain your result, this is one: ", "你的结果是两个错误叠加而成，其一：")
CHANGED = Said(
    "Your function writes into its argument {names}; whoever called it still needs that. Make a new tensor or list.",
    "函数改写了它的参数 {names}，而调用者还要用它。请新建一个张量或列表。",
)
NAN = Said("Your result holds NaN, the right one does not.", "你的结果里有 NaN，正确的结果里没有。")
NONE = Said("Your function returns None; is a `return` missing?", "函数返回了 None；是不是漏了 `return`？")
AND = Said(", ", "、")
FOLLOWS = Said(
    "`{function}` itself is right; it fails because it calls {others}, which is still wrong.",
    "`{function}` 本身没有错；它失败是因为调用了 {others}，而后者还不对。",
)
KIND = Said(r"\1 tensor of shape \2", r"形状为 \2 的 \1 张量")
"""How a tensor is named, of its type and its shape."""
KINDS = {
    "kind": Said("Your function returns: {mine}; it should be: {wanted}.", "函数返回的是{mine}，应为{wanted}。"),
    "shape": Said("Your result is a {mine}; it should be a {wanted}.", "你的结果是{mine}，应为{wanted}。"),
    "dtype": Said(
        "Your result is a {mine}; it should be a {wanted}: its entries have another type.",
        "你的结果是{mine}，应为{wanted}：元素的类型不对。",
    ),
}
ABSENT = Said("The folder has no file {file}.", "目录里没有文件 {file}。")
TRAINING = Said("the training", "训练")
FAILURES = {
    "untrained": Said(
        "The training is not begun before the functions pass their own checks.",
        "函数要先通过各自的检查，才会开始训练。",
    ),
    "empty": Said("`{function}` is still to be written.", "`{function}` 还没有写。"),
    "missing": Said(
        "The file has no function `{function}`; was it renamed or deleted?",
        "文件里没有函数 `{function}`；是改了名字还是删掉了？",
    ),
    "slow": Said(
        "`{function}` had not finished after {words} seconds; is there an endless loop?",
        "`{function}` 用了 {words} 秒还没有结束；是不是死循环？",
    ),
    "crash": Said(
        "`{function}` ended the whole Python process instead of returning a result.",
        "`{function}` 没有返回结果，而是结束了整个 Python 进程。",
    ),
    "exit": Said(
        "The file calls exit(){place}; a function returns its result instead.",
        "文件调用了 exit(){place}；函数应当返回结果。",
    ),
    "memory": Said(
        "`{function}` wants more memory than an exercise needs{place}.",
        "`{function}` 需要的内存远超这道题所需{place}。",
    ),
    "syntax": Said("Python cannot read the file: {words}{place}.", "Python 读不懂这个文件：{words}{place}。"),
    "error": Said("Python stops with {kind}: {words}{place}.", "Python 报错 {kind}：{words}{place}。"),
}
INPUT = Said("the smallest input that shows it: {call}", "能看出错误的最小输入：{call}")
RESULTS = Said("yours: {mine}\nright: {right}", "你的结果：{mine}\n正确结果：{right}")
AT = Said("at {at}, yours: {mine}; right: {right}", "在 {at} 处，你的结果：{mine}；正确结果：{right}")
