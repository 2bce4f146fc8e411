"""An imported OPUS-MT model learns: an adapter from pairs, and one correction, undone to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN

import regard
from regard.adaptation.keep import Corrections
from regard.adaptation.merge import merge
from regard.errors import BundleError, ModelError
from regard.tasks.translate import Translator

pytest.importorskip("transformers", reason="needs the dev extra's transformers")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a random model with Marian's vocabulary, biases of tokens and forbidden ones."""
    from marians import marian

    from regard.exchange import import_marian

    folder = tmp_path_factory.mktemp("imported")
    import_marian(marian(folder / "opus-mt-en-de", init_std=0.1), folder / "bundle", lines=ENGLISH[:3], verify=False)
    return folder / "bundle"


@pytest.fixture(scope="module")
def learnt(imported: Path) -> Path:
    """An adapter that has learnt a handful of pairs by heart, so that the model says something."""
    file = imported.with_name("learnt.safetensors")
    how = {"epochs": 400, "rank": 32, "learning_rate": 0.01, "held_out": 0, "label_smoothing": 0, "batch_tokens": 2000}
    adapter = regard.adapt(imported, list(zip(ENGLISH, GERMAN, strict=True)), file, minutes=60, **how)
    assert adapter.card.about["pairs"] == len(GERMAN) - 1  # GERMAN[4] has a token that Marian does not know
    assert float(str(adapter.card.about["loss_after"])) < 0.5 < float(str(adapter.card.about["loss_before"]))
    return file


def texts(translator: Translator, precision: str = "auto") -> list[str]:
    return [each.text for each in translator.translate(ENGLISH, precision=precision)]


def test_an_adapter_is_learnt_and_merged(imported: Path, learnt: Path, tmp_path: Path) -> None:
    translator = regard.load(imported, adapter=learnt)
    found = texts(translator)
    assert sum(one == other for one, other in zip(found, GERMAN, strict=True)) > len(GERMAN) // 2
    assert texts(translator, "exact") == found
    assert texts(regard.load(merge(imported, learnt, tmp_path / "merged"))) == found
    with pytest.raises(BundleError, match="is the bundle itself"):
        merge(imported, learnt, imported)


def test_one_correction_holds_and_is_undone_to_the_bit(imported: Path, learnt: Path, tmp_path: Path) -> None:
    merged = merge(imported, learnt, tmp_path / "merged")
    for translator in (regard.load(imported, adapter=learnt), regard.load(merged)):
        before = [each.to_dict() for each in translator.translate(ENGLISH)]
        assert before[0]["text"] == GERMAN[0]
        kept = Corrections(translator, tmp_path / "kept")
        right = "Ein Mann mit einem Hut, der etwas anstarrt."
        made = kept.learn(ENGLISH[0], right)
        assert made is not None
        assert made.before == GERMAN[0]
        assert all(texts(kept.translator, precision)[0] == right for precision in ("auto", "exact"))
        with pytest.raises(ModelError, match="cannot write"):
            kept.learn(ENGLISH[4], GERMAN[4])
        assert kept.undo(made.id)
        assert [each.to_dict() for each in kept.translator.translate(ENGLISH)] == before
