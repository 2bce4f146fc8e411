"""Hugging Face's Marian (OPUS-MT) directories read into bundles, and compared with what transformers makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import util
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from regard import bundle as bundles
from regard import recipe as recipes
from regard.bundle import Bundle, Golden, Provenance
from regard.errors import ModelError, RecipeError
from regard.models.interface import EncoderDecoder
from regard.models.transformer import TransformerConfig, build
from regard.nn.positions import sinusoids
from regard.recipe import Recipe
from regard.search.config import SearchConfig
from regard.tasks.decode import decode
from regard.tasks.finish import versions
from regard.text import END, PAD, UNK, Tokenizer
from regard.text.subwords import Algorithm, Kind, algorithm_of, tokens_of

from .compare import Comparison, compare
from .huggingface import Foreign, HuggingFace
from .marian import BIAS, TABLES, layer_names
from .reading import Settings, json_of, settings_of, vocabularies_of, weights_of
from .vocabulary import Vocabulary

_NEVER = -1e4
"""Bias of a token that may not be written: its probability is zero, and training on is not disturbed."""
_GOLDEN, _GOLDEN_TOKENS = 8, 6


def import_marian(
    directory: str | Path, out: str | Path, *, lines: Sequence[str] = (), verify: bool = True
) -> Comparison | None:
    """A bundle at `out` from a Marian directory; what differed from transformers, where that is installed.

    `lines` become the golden sentences; without any they are made of the source's tokens. Nothing of the directory is
    run. Raises ModelError or TextError for what is missing, damaged or not supported.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ModelError(f"{directory}: must be a directory that holds a Marian model of Hugging Face.")
    settings = settings_of(directory)
    config = settings.config(directory / "config.json")
    source, target = vocabularies_of(directory, settings)
    file, held = weights_of(directory, config, (_size(source), _size(target)))
    weights = _our_weights(held, file, config, source, target)
    silent = [*target.silent, *_forbidden(directory, settings, target)]
    weights["output.bias"][silent] = _NEVER
    read, write = source.tokenizer[0], target.tokenizer[-1]
    recipe = _recipe(directory, settings, config, read, len(write))
    model = build(config, len(read), len(write), PAD)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        notes={"imported": f"Hugging Face's Marian directory {directory.resolve().name}"},
    )
    # Only the kind of state that it takes is narrower than what the protocol says.
    network = cast(EncoderDecoder, model.eval())
    golden = _golden(network, read, write, recipe.search, lines)
    bundle = Bundle(Path(out), recipe, read, write, tuple(golden), provenance, 0, {})
    found = None
    if verify and util.find_spec("transformers") is not None:
        tokenizer = _tokenizer(directory, settings, read)
        foreign = Foreign(settings.of_marian, tokenizer, held, (source.rows, target.rows), silent)
        found = compare(bundle, HuggingFace(directory, foreign), model=network)
        provenance = provenance.model_copy(
            update={"notes": {**provenance.notes, "verified": str(found).splitlines()[0]}}
        )
    bundles.save(out, recipe=recipe, weights=weights, source=read, target=write, provenance=provenance, golden=golden)
    return found


def _tokenizer(directory: Path, settings: Settings, source: Tokenizer) -> dict[str, str | bool]:
    """What MarianTokenizer is given: the files that have been read, and the names of two tokens."""
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    separate = settings.share != "all" and (directory / "target_vocab.json").exists()
    if separate:
        files["target_vocab_file"] = "target_vocab.json"
    unknown, end = source.tokens([UNK, END])
    named = {key: str(directory / file) for key, file in files.items()}
    return {**named, "unk_token": unknown, "eos_token": end, "separate_vocabs": separate}


def _forbidden(directory: Path, settings: Settings, target: Vocabulary) -> Iterator[int]:
    """Our ids of bad_words_ids."""
    for word in settings.bad_words_ids or ():
        if len(word) != 1 or word[0] not in target.rows:
            raise ModelError(f"{directory}: bad_words_ids has {list(word)}: only single tokens can be forbidden.")
        yield target.rows.index(word[0])


def _recipe(directory: Path, settings: Settings, config: TransformerConfig, source: Tokenizer, size: int) -> Recipe:
    file = directory / "tokenizer_config.json"
    said = json_of(file) if file.exists() else {}
    languages = {
        f"{side}_language": code
        for side in ("source", "target")
        if isinstance(code := said.get(f"{side}_lang"), str) and re.fullmatch("[a-z]{2,3}", code)
    }
    kind = "unigram" if algorithm_of(source.to_bytes()) == Algorithm.UNIGRAM else "bpe"
    name = directory.resolve().name
    try:
        return recipes.validate(
            {
                "name": name,
                # What it was trained on is not known; who trains on names files of their own.
                "data": {"source": "train.source", "target": "train.target", **languages},
                "text": {"kind": kind, "size": size, "joint": config.share == "all", "byte_fallback": False},
                "model": config.model_dump(mode="json"),
                "search": {"beam": settings.num_beams, "penalty": "power", "alpha": settings.length_penalty},
            }
        )
    except RecipeError as error:
        raise ModelError(f"{directory}: {error}") from None


def _golden(
    model: EncoderDecoder, source: Tokenizer, target: Tokenizer, search: SearchConfig, lines: Sequence[str]
) -> list[Golden]:
    texts = [line for line in lines if line.strip()] or list(_made_up(source))
    ids = [source.encode(text) for text in texts]
    found = decode(model, ids, search)
    return [
        Golden(source=text, source_ids=tuple(read), target_ids=tuple(h.ids), output=target.decode(h.ids))
        for text, read, (h, *_) in zip(texts, ids, found, strict=True)
    ]


def _made_up(source: Tokenizer) -> Iterator[str]:
    """Lines of words that the source's model knows: not language, but in the right script."""
    words = [p.text[1:] for p in tokens_of(source.to_bytes()) if p.kind == Kind.NORMAL and p.text[:1] == "\u2581"]
    words = [word for word in words if word.isalpha()] or [p.text for p in tokens_of(source.to_bytes())[END + 1 :]]
    every = max(1, len(words) // (_GOLDEN * _GOLDEN_TOKENS))
    chosen = words[::every]
    for start in range(0, min(len(chosen), _GOLDEN * _GOLDEN_TOKENS), _GOLDEN_TOKENS):
        yield " ".join(chosen[start : start + _GOLDEN_TOKENS])


def _our_weights(
    held: dict[str, Tensor], file: Path, config: TransformerConfig, source: Vocabulary, target: Vocabulary
) -> dict[str, Tensor]:
    """Our parameters by name, out of Marian's; every tensor of the file must be accounted for."""
    left = dict(held)

    def take(name: str, shape: Sequence[int]) -> Tensor:
        if name not in left:
            raise ModelError(
                f"{file}: {name} is missing, which config.json asks for; the file belongs to another model."
            )
        if tuple(left[name].shape) != tuple(shape):
            raise ModelError(
                f"{file}: {name} is {tuple(left[name].shape)}, and config.json asks for {tuple(shape)}; one of the two "
                "belongs to another model."
            )
        return left.pop(name).float()

    def rows(tensor: Tensor, vocabulary: Vocabulary) -> Tensor:
        wanted = torch.tensor(vocabulary.rows)
        return tensor[wanted.clamp(min=0)] * (wanted >= 0)[:, None]

    with torch.device("meta"):
        model = build(config, len(source.rows), len(target.rows), PAD)
    weights = {}
    for name, parameter in model.named_parameters():
        if name in TABLES[config.share]:
            vocabulary = source if name.startswith("source.") else target
            size = _size(vocabulary)
            same = [n for n in TABLES[config.share][name] if n in left] or [TABLES[config.share][name][0]]
            tables = [take(n, (size, config.width)) for n in same]
            if not all(torch.equal(tables[0], table) for table in tables[1:]):
                raise ModelError(f"{file}: {same[0]} and {same[1]} differ, and config.json says that they are one.")
            weights[name] = rows(tables[0], vocabulary)
        elif name == "output.bias":
            size = _size(target)
            bias = take(BIAS, (1, size)) if BIAS in left else torch.zeros(1, size)
            weights[name] = rows(bias.T, target)[:, 0]
        else:
            theirs = layer_names(name)
            shape = (parameter.shape[0] // len(theirs), *parameter.shape[1:])
            weights[name] = torch.cat([take(n, shape) for n in theirs])
    for side in ("encoder", "decoder"):
        left.pop(f"{side}.version", None)
        table = left.pop(f"model.{side}.embed_positions.weight", None)
        if table is not None:
            expected = torch.cat(sinusoids(torch.arange(len(table)), config.width), dim=-1)
            if table.shape != expected.shape or not torch.allclose(table.float(), expected, atol=1e-3):
                raise ModelError(f"{file}: model.{side}.embed_positions.weight holds no sinusoids; not supported.")
    if left:
        raise ModelError(
            f"{file}: {min(left)} has no place in a Marian model as config.json describes it; this kind of model is "
            "not supported."
        )
    return weights


def _size(vocabulary: Vocabulary) -> int:
    """Tokens that Marian's vocabulary has."""
    return len(set(vocabulary.rows) - {-1})
