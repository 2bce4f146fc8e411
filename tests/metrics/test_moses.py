"""BLEU of published protocols is sacremoses and sacrebleu called directly, and Perl splits compounds alike."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from regard.errors import DataError
from regard.metrics import METRICS, score
from regard.metrics.moses import MOSES, split_compounds

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("REGARD_DATA", "no data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="REGARD_DATA does not name the corpora")


def lines_of(name: str) -> list[str]:
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="\n") as stream:
        return stream.read().split("\n")[:-1]


def direct(hypotheses: list[str], references: list[str], code: str, name: str) -> float:
    tokenizer, normalizer = MosesTokenizer(lang=code), MosesPunctNormalizer(lang=code)

    def prepared(line: str) -> str:
        if name in ("bleu-moses-lc", "bleu-multi30k"):
            line = line.lower()
        if name == "bleu-multi30k":
            line = normalizer.normalize(line)
        line = tokenizer.tokenize(line, return_str=True)
        return split_compounds(line) if name == "bleu-compound" else line

    sides = [[prepared(line) for line in side] for side in (hypotheses, references)]
    return float(BLEU(tokenize="none", force=True).corpus_score(sides[0], [sides[1]]).score)


@needs_data
@pytest.mark.parametrize("name", MOSES)
def test_equal_to_the_libraries_on_a_real_translation(name):
    said = lines_of("mlqe_pe_en-de/dev.mt.gz"), lines_of("mlqe_pe_en-de/dev.pe.gz")
    got = METRICS[name](*said, language="de", resamples=0)
    assert got.value == direct(*said, "de", name)
    assert "tok:moses-de" in got.signature
    assert ("case:lc" in got.signature) == (name in ("bleu-moses-lc", "bleu-multi30k"))
    assert ("norm:moses" in got.signature) == (name == "bleu-multi30k")
    assert ("split:compound" in got.signature) == (name == "bleu-compound")
    assert "sacremoses:" in got.signature


@needs_data
def test_the_protocols_give_different_figures_on_multi30k():
    said = (ROOT / "results" / "lineage" / "transformer-2" / "hypotheses.txt").read_text("utf-8").splitlines()
    right = lines_of("multi30k/test_2016_flickr.en.gz")
    found = score(said, right, ["bleu", *MOSES], language="en", resamples=0)
    assert found["bleu-multi30k"].value == direct(said, right, "en", "bleu-multi30k")
    assert len({one.signature for one in found.values()}) == len({one.name for one in found.values()}) == 5
    assert found["bleu-moses"].value < found["bleu-moses-lc"].value


@needs_data
@pytest.mark.skipif(not shutil.which("perl"), reason="there is no Perl here")
def test_compounds_are_split_as_perl_splits_them():
    lines = [*lines_of("wmt_newstest/newstest2013.de.gz"), "a-ö-b", "a-b-c", "- - x-", "Ä-Ö"]
    script = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"
    out = subprocess.run(["perl", "-ple", script], input="\n".join(lines).encode(), capture_output=True, check=True)
    assert [split_compounds(line) for line in lines] == out.stdout.decode().split("\n")[: len(lines)]
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"


def test_text_without_spaces_is_refused():
    with pytest.raises(DataError, match="bleu-moses needs words with spaces"):
        score(["两个男子。"], ["两个男子。"], ["bleu-moses"], language="zh")
