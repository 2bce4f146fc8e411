"""Model families: one page each, here or in the room that it is for, which says in its `FAMILIES` what it is of."""

from __future__ import annotations

from .choices import Families
from .interface import EncoderDecoder, Family, Kind, NeedsVocabulary

__all__ = ["FAMILIES", "EncoderDecoder", "Families", "Family", "Kind", "NeedsVocabulary"]

FAMILIES = Families(
    {
        "bahdanau": "regard.models.bahdanau",
        "bert": "regard.language.bert",
        "bert-classifier": "regard.language.bert",
        "convs2s": "regard.models.convs2s",
        "gpt": "regard.language.gpt",
        "lstmn": "regard.models.lstmn",
        "lstmn-translator": "regard.models.lstmn",
        "luong": "regard.models.luong",
        "mask-predict": "regard.models.mask_predict",
        "parser": "regard.parsing.model",
        "rnn-lm": "regard.language.rnn",
        "self-attentive": "regard.language.self_attentive",
        "seq2seq": "regard.models.seq2seq",
        "transformer": "regard.models.transformer",
    }
)
"""Every family by its name, with its page; others are added with `FAMILIES["mine"] = …`."""
