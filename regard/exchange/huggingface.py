"""A Marian model as transformers computes it, behind our ids: what imports and exports are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.errors import ModelError
from regard.search.config import SearchConfig
from regard.text import BEGIN, END

from .marian import generation

_OTHERWISE = {
    ">>de<< a": "a line that begins with >>…<< (one language tag there, text here)",
    "a </s> b": "a literal </s>, <unk> or <pad> (a special token there)",
    "a\u2581b": "U+2581 (a space there)",
}
"""Lines that MarianTokenizer reads in its own way, whatever its files say; a tag may be one of the bundle's too."""
_STRIPPED = "\x1fa"


@dataclass(frozen=True)
class Foreign:
    """What has been read and checked of a directory that somebody else made."""

    config: Mapping[str, Any]
    """Settings of MarianConfig that are known and valid; transformers is given no others."""
    tokenizer: Mapping[str, Any]
    """The same of MarianTokenizer, its files included."""
    weights: Mapping[str, Tensor]
    rows: tuple[Sequence[int], Sequence[int]]
    """Its ids of our source's and of our target's."""
    silent: Sequence[int]
    """Our ids that it may not write."""


class HuggingFace:
    """A directory as transformers reads it. Without `foreign` it is one of ours, and its ids are ours."""

    stop: Literal["bound", "beam"] = "bound"

    def __init__(self, directory: Path, foreign: Foreign | None = None) -> None:
        from transformers import MarianConfig, MarianMTModel, MarianTokenizer

        self.name = f"transformers {metadata.version('transformers')}"
        # transformers has no types that say what these are.
        self.tokenizer: Any
        self.model: Any
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it recommends another package
                if foreign is None:
                    self.tokenizer = MarianTokenizer.from_pretrained(directory, local_files_only=True)
                    self.model = MarianMTModel.from_pretrained(directory, local_files_only=True)
                else:
                    self.tokenizer = MarianTokenizer(**foreign.tokenizer)
                    self.model = MarianMTModel(MarianConfig(**foreign.config))
                    weights = {name: tensor.float() for name, tensor in foreign.weights.items()}
                    self.model.load_state_dict(weights, strict=False)
        except (OSError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(
                f"{directory}: {self.name} cannot read it ({reason}); --no-verify does without."
            ) from error
        self.model.float().eval()
        self.model.generation_config.forced_eos_token_id = None  # an output that is cut is not ended here either
        same = range(max(self.model.config.vocab_size, self.model.config.decoder_vocab_size))
        self.source, self.target = foreign.rows if foreign else (same, same)
        silent = foreign.silent if foreign else ()
        # One of our ids may be silent because another of ours has the same row; that row may be written.
        written = {self.target[i] for i in range(len(self.target)) if i not in silent}
        self.suppressed = sorted({self.target[i] for i in silent} - written - {-1})

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        """See `Other`."""
        found: list[int] = self.tokenizer(line).input_ids
        return found[:-1] == [self.source[i] for i in ids]

    def otherwise(self, bundle: Bundle) -> list[str]:
        """See `Other`."""
        found = [what for line, what in _OTHERWISE.items() if not self.reads(line, bundle.source.encode(line))]
        written = bundle.target.encode(_STRIPPED)
        text = self.tokenizer.decode([self.target[i] for i in written], skip_special_tokens=True)
        if text != bundle.target.decode(written):
            found.append("outputs that begin or end with spaces or control characters (stripped there)")
        return found

    @torch.inference_mode()
    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        """See `Other`."""
        found = self.model.generate(
            input_ids=self._read(source),
            max_new_tokens=limit,
            suppress_tokens=self.suppressed or None,
            **generation(search),
        )[0].tolist()[1:]
        end = self.target[END]
        return [self.target.index(i) for i in (found[: found.index(end)] if end in found else found)]

    @torch.inference_mode()
    def log_probability(self, source: Sequence[int], target: Sequence[int]) -> float:
        """See `Other`."""
        written = torch.tensor([[self.target[i] for i in (BEGIN, *target, END)]])
        logits = self.model(input_ids=self._read(source), decoder_input_ids=written[:, :-1]).logits[0]
        logits[:, self.suppressed] = float("-inf")
        return float(logits.log_softmax(-1).gather(1, written[0, 1:, None]).double().sum())

    def _read(self, source: Sequence[int]) -> Tensor:
        return torch.tensor([[self.source[i] for i in (*source, END)]])
