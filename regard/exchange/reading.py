"""What a Marian (OPUS-MT) directory of Hugging Face says, made by anybody: settings, vocabularies, weights.

Nothing of it is trusted: only regular files of a bounded size are read, sizes are held against the weights' file before
anything is made of them, and no pickle is run.
"""

from __future__ import annotations

import json
import stat
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import ModelError
from regard.models.transformer import TransformerConfig

from .vocabulary import Specials, Vocabulary, arrange

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
"""Theirs and ours."""
_MOST_LAYERS, _WIDEST = 1000, 1 << 17
_LARGEST = 64 << 20
"""Bytes of a file beside the weights: the largest vocabularies have a tenth of it."""


class Settings(BaseModel):
    """What of config.json and generation_config.json matters here; a value that is not allowed is not supported."""

    model_config = ConfigDict(extra="ignore", frozen=True)

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
    def of_marian(self) -> dict[str, Any]:
        """What MarianConfig is given: nothing that is not named here."""
        ours = {"bad_words_ids", "num_beams", "length_penalty", "model_type"}
        fixed = {"static_position_embeddings", "normalize_before", "normalize_embedding", "add_final_layer_norm"}
        return self.model_dump(exclude=ours | fixed, exclude_none=True)

    @property
    def share(self) -> Literal["all", "target", "none"]:
        if self.share_encoder_decoder_embeddings:
            return "all"
        return "target" if self.tie_word_embeddings else "none"

    def config(self, file: Path) -> TransformerConfig:
        for what in ("attention_heads", "ffn_dim"):
            one, other = getattr(self, f"encoder_{what}"), getattr(self, f"decoder_{what}")
            if one != other:
                raise ModelError(
                    f"{file}: encoder_{what} = {one} and decoder_{what} = {other}: Regard's Transformer has one "
                    "value for both, so this model cannot be brought over."
                )
        if self.share == "all" and not self.tie_word_embeddings:
            raise ModelError(
                f"{file}: tie_word_embeddings = false with shared embeddings of both sides is not supported; "
                "share_encoder_decoder_embeddings must be false too."
            )
        try:
            return TransformerConfig(
                width=self.d_model,
                encoder_layers=self.encoder_layers,
                decoder_layers=self.decoder_layers,
                heads=self.encoder_attention_heads,
                feedforward=self.encoder_ffn_dim,
                dropout=self.dropout,
                activation_dropout=self.activation_dropout,
                positions="sinusoidal-halves",
                activation=_ACTIVATIONS[self.activation_function],
                share=self.share,
                output_bias=True,
            )
        except ValidationError as error:
            raise ModelError(f"{file}: {error.errors()[0]['msg']}.") from None


def settings_of(directory: Path) -> Settings:
    config = json_of(directory / "config.json")
    generation = directory / "generation_config.json"
    decides = {"bad_words_ids", "num_beams", "length_penalty", "decoder_start_token_id"}
    if generation.exists():
        config |= {key: value for key, value in json_of(generation).items() if key in decides and value is not None}
    try:
        return Settings.model_validate({key: value for key, value in config.items() if value is not None}, strict=False)
    except ValidationError as error:
        lines = []
        wrong = [details for details in error.errors() if details["loc"] == ("model_type",)]
        for details in wrong or error.errors():  # of another kind of model the rest is no matter
            key = ".".join(map(str, details["loc"]))
            if details["type"] == "missing":
                lines.append(f"{key} is missing; a Marian model's configuration has it.")
            else:
                rule = details["msg"].replace("Input should", "must")
                lines.append(f"{key} = {json.dumps(details['input'])}: {rule}; other models are not supported.")
        raise ModelError("\n".join(f"{directory / 'config.json'}: {line}" for line in lines)) from None


def json_of(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds. Raises ModelError for everything else."""
    try:
        value = json.loads(_bytes_of(file))
    except (ValueError, RecursionError):
        raise ModelError(f"{file}: is not JSON, or cut short; get it again.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{file}: must hold a JSON object, and holds a {type(value).__name__}.")
    return value


def _bytes_of(file: Path) -> bytes:
    """A file's content; a pipe or a device, which may never end, is not opened."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise ModelError(f"{file}: must be a regular file of at most {_LARGEST:,} bytes.")
        return file.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{file}: is missing; a Marian directory of Hugging Face has one.") from None
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror}).") from None


def weights_of(directory: Path, config: TransformerConfig, sizes: tuple[int, int]) -> tuple[Path, dict[str, Tensor]]:
    """The weights' file and what is in it, by name. `sizes` are those of the vocabularies.

    Raises ModelError for a file that is damaged, that is of another size than the configuration's model, or that holds
    anything but tensors; nothing of it runs.
    """
    names = ("model.safetensors", "pytorch_model.bin")
    file = next((directory / name for name in names if (directory / name).exists()), None)
    if file is None:
        raise ModelError(f"{directory}: has neither {names[0]} nor {names[1]}, which hold the weights.")
    layers = config.encoder_layers + config.decoder_layers
    each = 8 * config.width + 2 * config.feedforward + 32
    most = 8 * config.width * (2 * sum(sizes) + layers * each) + _LARGEST  # of 8 bytes a weight
    found = file.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise ModelError(
            f"{file}: must be a regular file of at most {most:,} bytes for the model that config.json describes, and "
            f"has {found.st_size:,}; one of the two belongs to another model."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it then refuses
            held = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except Exception as error:  # whatever another library raises while it reads bytes that anybody may have written
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if file.suffix == ".bin":
            raise ModelError(
                f"{file}: holds something other than tensors, or is damaged; it is not opened further, since a pickle "
                "can run code. Get the model as safetensors."
            ) from None
        raise ModelError(f"{file}: damaged or cut short ({reason}); get it again.") from None
    if not isinstance(held, dict) or not all(isinstance(value, Tensor) for value in held.values()):
        raise ModelError(f"{file}: must hold tensors by name, and holds something else.")
    for name, tensor in held.items():
        if tensor.is_complex() or not tensor.isfinite().all():
            raise ModelError(f"{file}: {name} must hold finite real numbers, and does not; the model is of no use.")
    return file, held


def _names(file: Path, size: int) -> list[str]:
    """vocab.json's tokens by id."""
    vocabulary = json_of(file)
    names = {id_: name for name, id_ in vocabulary.items() if isinstance(id_, int)}
    if len(vocabulary) != size or sorted(names) != list(range(size)):
        raise ModelError(
            f"{file}: has {len(vocabulary):,} tokens, and the model {size:,}: their ids must be 0 to {size - 1:,}, "
            "each once; the file belongs to another model."
        )
    return [names[i] for i in range(size)]


def vocabularies_of(directory: Path, settings: Settings) -> tuple[Vocabulary, Vocabulary]:
    """The source's and the target's; the same where embeddings are shared by all."""
    sides = [(str(directory / name), _bytes_of(directory / name)) for name in ("source.spm", "target.spm")]
    files = [directory / "vocab.json"]
    sizes = [settings.vocab_size]
    if settings.share != "all" and (directory / "target_vocab.json").exists():
        files.append(directory / "target_vocab.json")
        sizes.append(settings.decoder_vocab_size or settings.vocab_size)
    made: list[Vocabulary] = []
    for file, size in zip(files, sizes, strict=True):
        names = _names(file, size)
        unknown = names.index("<unk>") if "<unk>" in names else -1
        specials = Specials(settings.pad_token_id, unknown, settings.decoder_start_token_id, settings.eos_token_id)
        for what, id_ in vars(specials).items():
            if not 0 <= id_ < size:
                raise ModelError(f"{file}: has no token for {what} (id {id_}); it must have one.")
        models = sides if len(files) == 1 else [sides[len(made)]]
        made.append(arrange(names, models, specials))
    return made[0], made[-1]
