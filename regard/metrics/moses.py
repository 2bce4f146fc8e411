"""BLEU by the protocols of older papers: of text that the Moses tokenizer has split, each under a name of its own.

Their figures compare with those papers' and with no other BLEU. Before sacrebleu's BLEU without a tokenizer:

    bleu-moses      tokenizer.perl
    bleu-moses-lc   lower-cased, then tokenizer.perl
    bleu-multi30k   lower-cased, normalize-punctuation.perl, tokenizer.perl: the `lc.norm.tok` of Multi30k's own script
    bleu-compound   tokenizer.perl, then "rich-text" as "rich ##AT##-##AT## text": get_ende_bleu.sh of tensor2tensor,
                    for English to German of WMT14 (Vaswani et al. 2017); fairseq's compound_split_bleu.sh does the same

The scripts are those of sacremoses. Nothing else of a line is changed: no Unicode punctuation is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

from regard.errors import DataError, install

from .result import Counts, Metric
from .sacre import POINTS, counting, made, of_bleu, primary

_HYPHEN = re.compile(rb"(\S)-(\S)")  # of bytes, as Perl reads a file: with letters, "a-ö-b" would be split once


def _prepared(name: str, code: str) -> Callable[[str], str]:
    """What makes a line what is scored; DataError where sacremoses is not installed, and for text without spaces."""
    if code in ("zh", "ja"):
        raise DataError(f"{name} needs words with spaces between them, which {code} has not; use bleu.")
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ModuleNotFoundError:
        raise DataError(f"{name} needs sacremoses, which is not installed: {install('metrics')}.") from None
    tokenizer, normalizer = MosesTokenizer(lang=code), MosesPunctNormalizer(lang=code)

    def prepare(line: str) -> str:
        line = line.lower() if name in _LOWER else line
        line = str(tokenizer.tokenize(normalizer.normalize(line) if name == "bleu-multi30k" else line, return_str=True))
        return split_compounds(line) if name == "bleu-compound" else line

    return prepare


def split_compounds(line: str) -> str:
    """Hyphens between words set apart, as Google's and Stanford's German references have them."""
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def _metric(name: str, shown: str, about: str, unknown: str = "en") -> Metric:
    """`about` goes into the signature; `unknown` is the language of text of which it is not known."""
    count_plainly = counting(lambda _: made("BLEU", tokenize="none", force=True), of_bleu)

    def count(hypotheses: Sequence[str], sets: list[list[str]], language: str) -> Counts:
        code = primary(language) or unknown
        prepare = _prepared(name, code)
        found = count_plainly([*map(prepare, hypotheses)], [[*map(prepare, lines)] for lines in sets], code)
        signature = found.signature.replace("tok:none", about.format(code))
        signature = signature.replace("case:mixed", "case:lc") if name in _LOWER else signature
        return replace(found, signature=f"{signature}|sacremoses:{version('sacremoses')}")

    return Metric(shown, count, POINTS)


_LOWER = ("bleu-moses-lc", "bleu-multi30k")
MOSES = {
    "bleu-moses": _metric("bleu-moses", "BLEU (Moses)", "tok:moses-{}"),
    "bleu-moses-lc": _metric("bleu-moses-lc", "BLEU (Moses, lower-cased)", "tok:moses-{}"),
    "bleu-multi30k": _metric("bleu-multi30k", "BLEU (Multi30k)", "norm:moses|tok:moses-{}"),
    "bleu-compound": _metric("bleu-compound", "BLEU (compounds split)", "tok:moses-{}|split:compound", unknown="de"),
}
