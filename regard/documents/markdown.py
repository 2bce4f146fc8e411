"""Markdown: its text is found by translate-toolkit; the marks inside of it are kept as tags are."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence

from .markup import Translate, translate_markup
from .plain import as_text

_INLINE = re.compile(
    r"(?P<code>(?<!`)`++[^`]+`++|\{\d+\}|\\.|<[^<>]+>|!\[[^\]]{0,1000}\]\{\d+\})|(?P<link>\[)|(?P<linked>\](?:\{\d+\}|\([^)]*\)))|(?P<star>\*\*|__|\*|(?<!\w)_|_(?!\w))"
)


def markdown(data: bytes, translate: Translate, to: str = "") -> bytes:
    """Markdown with its text translated; code, addresses and front matter stay."""
    from translate.storage.markdown import MarkdownFile

    content, encoded = as_text(data)
    ends = "\r\n" if "\r\n" in content else "\n"
    plain = content.replace("\r\n", "\n").encode()

    def read(turn: Callable[[str], str]) -> bytes:
        made = MarkdownFile(io.BytesIO(plain), callback=turn, extract_code_blocks=False, extract_frontmatter=False)
        source: str = made.filesrc
        return encoded(source.replace("\n", ends))

    units: list[str] = []

    def collected(unit: str) -> str:
        units.append(unit)
        return unit

    read(collected)
    marked = [_tags_of(unit) for unit in units]
    found = translate_markup([text for text, _ in marked], translate, xml=True, inline=["m"])
    made = {unit: _untagged(text, kept) for unit, text, (_, kept) in zip(units, found, marked, strict=True)}
    return read(lambda unit: made.get(unit, unit))


def _tags_of(unit: str) -> tuple[str, list[tuple[str, str]]]:
    """A piece of Markdown with its marks as elements `<m n="…">`, and what each was written as, before and behind."""
    out, kept, at = list[str](), list[tuple[str, str]](), 0
    stack: list[tuple[str, int, int]] = []  # the mark, its number, where it stands in `out`
    for found in _INLINE.finditer(unit):
        out.append(html.escape(unit[at : found.start()], quote=False))
        at, mark = found.end(), found[0]
        if found["code"]:
            kept.append((mark, ""))
            out.append(f'<m n="{len(kept) - 1}"/>')
        elif found["link"] or (found["star"] and not any(open_ == mark for open_, _, _ in stack)):
            kept.append((mark, ""))
            stack.append((mark, len(kept) - 1, len(out)))
            out.append(f'<m n="{len(kept) - 1}">')
        else:
            wanted = "[" if found["linked"] else mark
            while stack:
                opened, number, place = stack.pop()
                if opened == wanted:
                    kept[number] = (opened, mark)
                    out.append("</m>")
                    break
                out[place] = f'<m n="{number}"/>'  # it was a sign, and no mark
            else:
                kept.append((mark, ""))
                out.append(f'<m n="{len(kept) - 1}"/>')
    for _, number, place in stack:
        out[place] = f'<m n="{number}"/>'
    return "".join([*out, html.escape(unit[at:], quote=False)]), kept


def _untagged(marked: str, kept: Sequence[tuple[str, str]]) -> str:
    out, stack = [], list[str]()
    for part in re.split(r"(<[^>]*>)", marked):
        if found := re.fullmatch(r'<m n="(\d+)"(/?)>', part):
            before, behind = kept[int(found[1])]
            out.append(before)
            if not found[2]:
                stack.append(behind)
        elif part == "</m>":
            out.append(stack.pop())
        else:
            out.append(html.unescape(part))
    return "".join(out)
