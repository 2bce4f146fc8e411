"""Model families: one page each, which says in its `FAMILIES` what it is of."""

from __future__ import annotations

from .choices import Families
from .interface import EncoderDecoder, Family, Kind, NeedsVocabulary

__all__ = ["FAMILIES", "EncoderDecoder", "Families", "Family", "Kind", "NeedsVocabulary"]


FAMILIES = Families(
    {
        "bahdanau": "regard.models.bahdanau",
        "bert": "regard.models.bert",
        "bert-classifier": "regard.models.bert",
        "convs2s": "regard.models.convs2s",
        "gpt": "regard.models.gpt",
        "lstmn": "regard.models.lstmn",
        "lstmn-translator": "regard.models.lstmn",
        "luong": "regard.models.luong",
        "mask-predict": "regard.models.mask_predict",
        "parser": "regard.parsing.model",
        "rnn-lm": "regard.models.rnn",
        "self-attentive": "regard.models.self_attentive",
        "seq2seq": "regard.models.seq2seq",
        "transformer": "regard.models.transformer",
    }
)
"""Every family by its name, with its page; others are added with `FAMILIES["mine"] = …`."""
