"""Random Marian models, as Hugging Face has those of OPUS-MT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from bundles import ENGLISH, GERMAN

from regard.text.subwords import TokenKind, tokens_of

transformers = pytest.importorskip("transformers", reason="needs the dev extra's transformers")


def spm(path: Path, lines: list[str]) -> None:
    """A unigram model as Marian's are: its own special ids, NFKC, spaces trimmed."""
    with path.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=stream,
            vocab_size=180,
            model_type="unigram",
            hard_vocab_limit=False,
            minloglevel=2,
        )


def marian(path: Path, *, share: bool = True, **settings: Any) -> Path:
    """A random Marian model with two SentencePiece models, as transformers writes it."""
    path.mkdir(parents=True)
    spm(path / "source.spm", ENGLISH)
    spm(path / "target.spm", GERMAN)
    sides = []
    for name in ("source.spm", "target.spm"):
        own = [p.text for p in tokens_of((path / name).read_bytes()) if p.kind == TokenKind.NORMAL]
        sides.append(own[:-7])  # some tokens are known to SentencePiece alone
    if share:
        sides = [sorted({*sides[0], *sides[1], ">>de<<"}, key=lambda token: token[::-1])]
    else:  # pad has one id on both sides
        sides = [side[: min(map(len, sides))] for side in sides]
    for file, side in zip(("vocab.json", "target_vocab.json"), sides, strict=False):
        names = ["</s>", "<unk>", *side, "<pad>"]
        (path / file).write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    sizes = [len(side) + 3 for side in sides]
    pad = sizes[0] - 1
    config = transformers.MarianConfig(
        **{
            "vocab_size": sizes[0],
            "decoder_vocab_size": sizes[-1],
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "activation_function": "swish",
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": share,
            "pad_token_id": pad,
            "eos_token_id": 0,
            "decoder_start_token_id": pad,
            "init_std": 0.3,
            **settings,
        }
    )
    torch.manual_seed(3)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 4  # the end comes sooner or later
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(path)
    (path / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de", "separate_vocabs": not share}), encoding="utf-8"
    )
    (path / "generation_config.json").write_text(
        json.dumps({"num_beams": 2, "length_penalty": 1.0, "bad_words_ids": [[pad]], "decoder_start_token_id": pad}),
        encoding="utf-8",
    )
    return path
