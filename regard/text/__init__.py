"""A line of text and its ids. No torch here."""

from __future__ import annotations

import regard.text.formats  # noqa: F401  (adds its formats to the table of `lines`)
from regard.text.lines import iter_lines, read_lines, split_tag, tag, write_lines
from regard.text.shortlist import Shortlist
from regard.text.subwords import TextConfig
from regard.text.tokenizer import BEGIN, END, GAPS, MASK, PAD, UNK, Tokenizer

__all__ = ["BEGIN", "END", "GAPS", "MASK", "PAD", "UNK", "Shortlist", "TextConfig", "Tokenizer", "iter_lines"]
__all__ += ["read_lines", "split_tag", "tag", "write_lines"]
