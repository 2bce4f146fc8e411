"""Hugging Face's Marian (OPUS-MT) directories read into bundles, and compared with what transformers makes of them.

Nothing of a directory is trusted: only regular files of a bounded size are read, sizes are held against the weights'
file before anything is made of them, and no pickle is run.
"""

from __future__ import annotations

import json
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import util
from pathlib import Path
from typing import Literal, cast

import torch
from pydantic import BaseModel, Field, ValidationError
from safetensors.torch import load_file
from torch import Tensor

from regard import bundle as bundles
from regard import recipe as recipes
from regard.bundle import Bundle, Provenance, versions
from regard.errors import ModelError, RecipeError
from regard.models.interface import EncoderDecoder
from regard.models.transformer import TransformerConfig, build
from regard.nn.positions import sinusoids
from regard.recipe import Recipe
from regard.tasks.golden import answered
from regard.text import END, PAD, UNK, Tokenizer
from regard.text.subwords import Algorithm, TokenKind, algorithm_of, tokens_of

from .compare import Comparison, compare
from .huggingface import BIAS, SETTINGS, TABLES, Foreign, HuggingFace, layer_names
from .vocabulary import Specials, Vocabulary, arrange

_NEVER = -1e4  #: Bias of a token that may not be written: its probability is zero, and training on is not disturbed.
_GOLDEN, _GOLDEN_TOKENS = 8, 6
_MOST_LAYERS, _WIDEST = 1000, 1 << 17
_LARGEST = 64 << 20  #: Bytes of a file beside the weights: the largest vocabularies have a tenth of it.


class _Settings(BaseModel, extra="ignore", frozen=True):
    """What of config.json and generation_config.json matters here; a value that is not allowed is not supported."""

    model_type: Literal["marian"]
    vocab_size: int = Field(gt=4)
    decoder_vocab_size: int | None = Field(None, gt=4)
    d_model: int = Field(gt=0, le=_WIDEST)
    encoder_layers: int = Field(gt=0, le=_MOST_LAYERS)
    decoder_layers: int = Field(gt=0, le=_MOST_LAYERS)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0, le=_WIDEST)
    decoder_ffn_dim: int = Field(gt=0, le=_WIDEST)
    activation_function: Literal["relu", "gelu", "swish", "silu"]
    dropout: float = Field(0.1, ge=0, lt=1)
    activation_dropout: float = Field(0.0, ge=0, lt=1)
    scale_embedding: Literal[True]
    static_position_embeddings: Literal[True] = True
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    max_position_embeddings: int = Field(1024, gt=0, le=_WIDEST)
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None
    num_beams: int = Field(1, gt=0)
    length_penalty: float = Field(1.0, ge=0, le=100)

    @property
    def of_marian(self) -> dict[str, object]:
        """What MarianConfig is given: nothing that is not named here."""
        ours = {"bad_words_ids", "num_beams", "length_penalty", "model_type"}
        fixed = {"static_position_embeddings", "normalize_before", "normalize_embedding", "add_final_layer_norm"}
        return self.model_dump(exclude=ours | fixed, exclude_none=True)

    @property
    def share(self) -> Literal["all", "target", "none"]:
        if self.share_encoder_decoder_embeddings:
            return "all"
        return "target" if self.tie_word_embeddings else "none"


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
    settings = _settings(directory)
    config = _config(settings, directory / "config.json")
    separate = settings.share != "all" and (directory / "target_vocab.json").exists()
    source, target = _vocabularies(directory, settings, separate)
    file, held = _weights(directory, config, source.size + target.size)
    weights = _our_weights(held, file, config, source, target)
    silent = [*target.silent, *_forbidden(directory, settings, target)]
    weights["output.bias"][silent] = _NEVER
    read, write = source.tokenizer[0], target.tokenizer[-1]
    recipe = _recipe(directory, settings, config, read, len(write))
    model = build(config, len(read), len(write), PAD)
    model.load_state_dict(weights, strict=False)
    asked = [line for line in lines if line.strip()] or [*_made_up(read)]
    golden = answered(asked, model.eval(), recipe, read, write)
    notes = {"imported": f"Hugging Face's Marian directory {directory.resolve().name}"}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    comparison = None
    if verify and util.find_spec("transformers") is not None:
        tokenizer = _tokenizer(directory, read, separate)
        foreign = Foreign(settings.of_marian, tokenizer, held, (source.rows, target.rows), silent)
        bundle = Bundle(Path(out), recipe, read, write, tuple(golden), Provenance(), 0, {})
        # Only the kind of state that the model takes is narrower than what the protocol says.
        comparison = compare(bundle, HuggingFace(directory, foreign), model=cast(EncoderDecoder, model))
        notes["verified"] = str(comparison).splitlines()[0]
    provenance = Provenance(created=created, versions=versions(), notes=notes)
    bundles.save(out, recipe=recipe, weights=weights, source=read, target=write, provenance=provenance, golden=golden)
    return comparison


def _tokenizer(directory: Path, source: Tokenizer, separate: bool) -> dict[str, str | bool]:
    """What MarianTokenizer is given: the files that have been read, and the names of two tokens."""
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    files |= {"target_vocab_file": "target_vocab.json"} if separate else {}
    unknown, end = source.tokens([UNK, END])
    named = {key: str(directory / file) for key, file in files.items()}
    return {**named, "unk_token": unknown, "eos_token": end, "separate_vocabs": separate}


# -- files that anybody may have written -------------------------------------------------------------------------------


def _check_file(file: Path, most: int, why: str = "") -> None:
    """Raise ModelError for a pipe or a device, which may never end, and for more bytes than `most`."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise ModelError(f"{file}: must be a regular file of at most {most:,} bytes{why}.")


def _bytes(file: Path) -> bytes:
    try:
        _check_file(file, _LARGEST)
        return file.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{file}: is missing; a Marian directory of Hugging Face has one.") from None
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror}).") from None


def _json(file: Path) -> dict[str, object]:
    """The object that a JSON file holds. Raises ModelError for everything else."""
    try:
        value = json.loads(_bytes(file))
    except (ValueError, RecursionError):
        raise ModelError(f"{file}: is not JSON, or cut short; get it again.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{file}: must hold a JSON object, and holds a {type(value).__name__}.")
    return value


def _settings(directory: Path) -> _Settings:
    file, generation = directory / "config.json", directory / "generation_config.json"
    said = _json(file)
    decides = {"bad_words_ids", "num_beams", "length_penalty", "decoder_start_token_id"}
    if generation.exists():
        said |= {key: value for key, value in _json(generation).items() if key in decides and value is not None}
    try:
        return _Settings.model_validate({key: value for key, value in said.items() if value is not None}, strict=False)
    except ValidationError as error:
        lines = []
        wrong = [details for details in error.errors() if details["loc"] == ("model_type",)]
        for details in wrong or error.errors():  # of another kind of model the rest is no matter
            key, rule = ".".join(map(str, details["loc"])), details["msg"].replace("Input should", "must")
            lines.append(
                f"{file}: {key} is missing; a Marian model's configuration has it."
                if details["type"] == "missing"
                else f"{file}: {key} = {json.dumps(details['input'])}: {rule}; other models are not supported."
            )
        raise ModelError("\n".join(lines)) from None


def _config(settings: _Settings, file: Path) -> TransformerConfig:
    values: dict[str, object] = {}
    for theirs, ours in SETTINGS.items():
        value = getattr(settings, theirs)
        if values.setdefault(ours, value) != value:
            raise ModelError(
                f"{file}: {theirs.replace('decoder', 'encoder')} = {values[ours]} and {theirs} = {value}: Regard's "
                "Transformer has one value for both, so this model cannot be brought over."
            )
    if settings.share == "all" and not settings.tie_word_embeddings:
        raise ModelError(
            f"{file}: tie_word_embeddings = false with shared embeddings of both sides is not supported; "
            "share_encoder_decoder_embeddings must be false too."
        )
    activation = "silu" if settings.activation_function == "swish" else settings.activation_function
    fixed = {"positions": "sinusoidal-halves", "output_bias": True}
    try:
        return TransformerConfig.model_validate({**values, **fixed, "activation": activation, "share": settings.share})
    except ValidationError as error:
        raise ModelError(f"{file}: {error.errors()[0]['msg']}.") from None


def _vocabularies(directory: Path, settings: _Settings, separate: bool) -> tuple[Vocabulary, Vocabulary]:
    """The source's and the target's; the same where they are not separate."""
    models = [(str(directory / name), _bytes(directory / name)) for name in ("source.spm", "target.spm")]
    sizes = {"vocab.json": settings.vocab_size}
    if separate:
        sizes["target_vocab.json"] = settings.decoder_vocab_size or settings.vocab_size
    made: list[Vocabulary] = []
    for name, size in sizes.items():
        file = directory / name
        vocabulary = _json(file)
        names = {id_: token for token, id_ in vocabulary.items() if isinstance(id_, int)}
        if len(vocabulary) != size or sorted(names) != list(range(size)):
            raise ModelError(
                f"{file}: has {len(vocabulary):,} tokens, and the model {size:,}: their ids must be 0 to {size - 1:,}, "
                "each once; the file belongs to another model."
            )
        unknown = next((id_ for id_, token in names.items() if token == "<unk>"), -1)
        specials = Specials(settings.pad_token_id, unknown, settings.decoder_start_token_id, settings.eos_token_id)
        for what, id_ in vars(specials).items():
            if not 0 <= id_ < size:
                raise ModelError(f"{file}: has no token for {what} (id {id_}); it must have one.")
        own = [models[len(made)]] if separate else models
        made.append(arrange([names[i] for i in range(size)], own, specials))
    return made[0], made[-1]


def _forbidden(directory: Path, settings: _Settings, target: Vocabulary) -> Iterator[int]:
    """Our ids of bad_words_ids."""
    for word in settings.bad_words_ids or ():
        if len(word) != 1 or word[0] not in target.rows:
            raise ModelError(f"{directory}: bad_words_ids has {list(word)}: only single tokens can be forbidden.")
        yield target.rows.index(word[0])


def _recipe(directory: Path, settings: _Settings, config: TransformerConfig, source: Tokenizer, size: int) -> Recipe:
    file = directory / "tokenizer_config.json"
    said = _json(file) if file.exists() else {}
    languages = {
        f"{side}_language": code
        for side in ("source", "target")
        if isinstance(code := said.get(f"{side}_lang"), str) and re.fullmatch("[a-z]{2,3}", code)
    }
    kind = "unigram" if algorithm_of(source.to_bytes()) == Algorithm.UNIGRAM else "bpe"
    try:
        return recipes.validate(
            {
                "name": directory.resolve().name,
                # What it was trained on is not known; who trains on names files of their own.
                "data": {"source": "train.source", "target": "train.target", **languages},
                "text": {"kind": kind, "size": size, "joint": config.share == "all", "byte_fallback": False},
                "model": config.model_dump(mode="json"),
                "search": {"beam": settings.num_beams, "penalty": "power", "alpha": settings.length_penalty},
            }
        )
    except RecipeError as error:
        raise ModelError(f"{directory}: {error}") from None


def _made_up(source: Tokenizer) -> Iterator[str]:
    """Lines of words that the source's model knows: not language, but in the right script."""
    tokens = tokens_of(source.to_bytes())
    words = [token.text[1:] for token in tokens if token.kind == TokenKind.NORMAL and token.text[:1] == "\u2581"]
    words = [word for word in words if word.isalpha()] or [token.text for token in tokens[END + 1 :]]
    chosen = words[:: max(1, len(words) // (_GOLDEN * _GOLDEN_TOKENS))]
    for start in range(0, min(len(chosen), _GOLDEN * _GOLDEN_TOKENS), _GOLDEN_TOKENS):
        yield " ".join(chosen[start : start + _GOLDEN_TOKENS])


# -- weights -----------------------------------------------------------------------------------------------------------


def _weights(directory: Path, config: TransformerConfig, rows: int) -> tuple[Path, dict[str, Tensor]]:
    """The weights' file and what is in it, by name. The two vocabularies have so many rows together.

    Raises ModelError for a file that is damaged, that is of another size than the configuration's model, or that holds
    anything but tensors; nothing of it runs.
    """
    names = ("model.safetensors", "pytorch_model.bin")
    file = next((directory / name for name in names if (directory / name).exists()), None)
    if file is None:
        raise ModelError(f"{directory}: has neither {names[0]} nor {names[1]}, which hold the weights.")
    layers = config.encoder_layers + config.decoder_layers
    each = 8 * config.width + 2 * config.feedforward + 32
    most = 8 * config.width * (2 * rows + layers * each) + _LARGEST  # of 8 bytes a weight
    size = f"for the model that config.json describes, and has {file.stat().st_size:,}"
    _check_file(file, most, f" {size}; one of the two belongs to another model")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it then refuses
            held = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except Exception as error:  # whatever another library raises while it reads bytes that anybody may have written
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"{file}: holds something other than tensors, or is damaged; it is not opened further, since a pickle "
            "can run code. Get the model as safetensors."
            if file.suffix == ".bin"
            else f"{file}: damaged or cut short ({reason}); get it again."
        ) from None
    if not isinstance(held, dict) or not all(isinstance(value, Tensor) for value in held.values()):
        raise ModelError(f"{file}: must hold tensors by name, and holds something else.")
    for name, tensor in held.items():
        if tensor.is_complex() or not tensor.isfinite().all():
            raise ModelError(f"{file}: {name} must hold finite real numbers, and does not; the model is of no use.")
    return file, held


def _our_weights(
    held: dict[str, Tensor], file: Path, config: TransformerConfig, source: Vocabulary, target: Vocabulary
) -> dict[str, Tensor]:
    """Our parameters by name, out of Marian's; every tensor of the file must be accounted for."""
    left = dict(held)

    def take(name: str, *shape: int) -> Tensor:
        tensor = left.pop(name, None)
        if tensor is None or tensor.shape != shape:
            found = "missing" if tensor is None else str(tuple(tensor.shape))
            raise ModelError(f"{file}: {name} is {found}, and config.json asks for {shape}; one is of another model.")
        return tensor.float()

    def rows(tensor: Tensor, vocabulary: Vocabulary) -> Tensor:
        wanted = torch.tensor(vocabulary.rows)
        return tensor[wanted.clamp(min=0)] * (wanted >= 0)[:, None]

    with torch.device("meta"):
        model = build(config, len(source.rows), len(target.rows), PAD)
    weights = {}
    for name, parameter in model.named_parameters():
        if known := TABLES[config.share].get(name):
            vocabulary = source if name.startswith("source.") else target
            same = [n for n in known if n in left] or [known[0]]
            tables = [take(n, vocabulary.size, config.width) for n in same]
            if not all(torch.equal(tables[0], table) for table in tables):
                raise ModelError(f"{file}: {same[0]} and {same[1]} differ, and config.json says that they are one.")
            weights[name] = rows(tables[0], vocabulary)
        elif name == "output.bias":
            bias = take(BIAS, 1, target.size) if BIAS in left else torch.zeros(1, target.size)
            weights[name] = rows(bias.T, target)[:, 0]
        else:
            theirs = layer_names(name)
            size, *rest = parameter.shape
            weights[name] = torch.cat([take(n, size // len(theirs), *rest) for n in theirs])
    for side in ("encoder", "decoder"):
        left.pop(f"{side}.version", None)
        table = left.pop(f"model.{side}.embed_positions.weight", None)
        if table is not None:
            expected = torch.cat(sinusoids(torch.arange(len(table)), config.width), dim=-1)
            if table.shape != expected.shape or not torch.allclose(table.float(), expected, atol=1e-3):
                raise ModelError(f"{file}: model.{side}.embed_positions.weight holds no sinusoids; not supported.")
    if left:
        why = "as config.json describes it; this kind of model is not supported"
        raise ModelError(f"{file}: {min(left)} has no place in a Marian model {why}.")
    return weights
