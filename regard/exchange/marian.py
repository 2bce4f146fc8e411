"""Hugging Face's Marian (OPUS-MT) directories: read into bundles, and written from them.

Both are the same network: post-norm, sinusoids with all sines first, scaled embeddings, a bias on the logits. So a
weight is copied, never computed with; where our sinusoids are interleaved, features change places throughout.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import bundle as bundles
from regard import recipe as recipes
from regard.bundle import Bundle, Golden, Provenance
from regard.errors import ModelError, RecipeError
from regard.models.transformer import TransformerConfig, build
from regard.nn.positions.added import sinusoids
from regard.recipe import Recipe
from regard.search import SearchConfig
from regard.tasks.decode import decode
from regard.tasks.fit import versions
from regard.text import BEGIN, END, PAD, UNK, Tokenizer
from regard.text.format import Algorithm, Kind, algorithm_of, tokens_of

from .compare import Comparison, compare
from .vocabulary import Specials, Vocabulary, arrange, marian_names

__all__ = ["HuggingFace", "import_marian", "write_marian"]

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
"""Theirs and ours."""
_NEVER = -1e4
"""Bias of a token that may not be written: its probability is zero, and training on is not disturbed."""
_GOLDEN, _GOLDEN_TOKENS = 8, 6
_MAX_POSITIONS = 1024

_PARTS = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
    "feedforward_residual.norm": "final_layer_norm",
}
"""Parts of a layer: ours and theirs."""
_SHARED, _SOURCE, _TARGET, _OUTPUT, _BIAS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
    "final_logits_bias",
)
_TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {"source.table.weight": (_SHARED, _SOURCE, _TARGET, _OUTPUT)},
    "target": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET, _OUTPUT)},
    "none": {"source.table.weight": (_SOURCE,), "target.table.weight": (_TARGET,), "output.weight": (_OUTPUT,)},
}
"""By what is shared: our table and its names there, of which at least one is in a file."""


# -- what a directory says ---------------------------------------------------------------------------------------------


class _Settings(BaseModel):
    """What of config.json and generation_config.json matters here; a value that is not allowed is not supported."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model_type: Literal["marian"]
    vocab_size: int = Field(gt=4)
    decoder_vocab_size: int | None = Field(None, gt=4)
    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    activation_function: Literal["relu", "gelu", "swish", "silu"]
    dropout: float = Field(0.1, ge=0, lt=1)
    activation_dropout: float = Field(0.0, ge=0, lt=1)
    scale_embedding: Literal[True]
    static_position_embeddings: Literal[True] = True
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None
    num_beams: int = Field(1, gt=0)
    length_penalty: float = Field(1.0, ge=0)

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


def _settings(directory: Path) -> _Settings:
    config = _json(directory / "config.json")
    generation = directory / "generation_config.json"
    decides = {"bad_words_ids", "num_beams", "length_penalty", "decoder_start_token_id"}
    if generation.exists():
        config |= {key: value for key, value in _json(generation).items() if key in decides and value is not None}
    try:
        return _Settings.model_validate(
            {key: value for key, value in config.items() if value is not None}, strict=False
        )
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


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ModelError(f"{file}: is missing; a Marian directory of Hugging Face has one.")
    try:
        value = json.loads(file.read_bytes())
    except ValueError:
        raise ModelError(f"{file}: is not JSON, or cut short; get it again.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{file}: must hold a JSON object, and holds a {type(value).__name__}.")
    return value


def _tensors(directory: Path) -> tuple[Path, dict[str, Tensor]]:
    """The weights' file and what is in it, by name; never runs code of the file."""
    file = directory / "model.safetensors"
    try:
        if file.exists():
            return file, load_file(file)
        file = directory / "pytorch_model.bin"
        if not file.exists():
            raise ModelError(
                f"{directory}: has neither model.safetensors nor pytorch_model.bin, which hold the weights."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it then refuses
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelError(
            f"{file}: holds something other than tensors, or is damaged; it is not opened further, since a pickle "
            "can run code. Get the model as safetensors."
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ModelError(f"{file}: damaged or cut short ({str(error).splitlines()[0]}); get it again.") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ModelError(f"{file}: must hold tensors by name, and holds something else.")
    return file, found


def _names(file: Path, size: int) -> list[str]:
    """vocab.json's tokens by id."""
    vocabulary = _json(file)
    names = {id_: name for name, id_ in vocabulary.items() if isinstance(id_, int)}
    if sorted(names) != list(range(size)) or len(vocabulary) != size:
        raise ModelError(
            f"{file}: has {len(vocabulary):,} tokens, and the model {size:,}: their ids must be 0 to {size - 1:,}, "
            "each once; the file belongs to another model."
        )
    return [names[i] for i in range(size)]


def _vocabularies(directory: Path, settings: _Settings) -> tuple[Vocabulary, Vocabulary]:
    """The source's and the target's; the same where embeddings are shared by all."""
    sides = []
    for name in ("source.spm", "target.spm"):
        try:
            sides.append((str(directory / name), (directory / name).read_bytes()))
        except OSError as error:
            raise ModelError(f"{directory / name}: the subword model cannot be read ({error.strerror}).") from None
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


# -- weights -----------------------------------------------------------------------------------------------------------


def _their_names(name: str) -> list[str]:
    """What Marian calls the parts of a layer's parameter of ours, in their order in it."""
    side, number, *rest = name.split(".")
    part, kind = ".".join(rest[:-1]), rest[-1]
    parts = [part.replace("key_value", one) for one in ("key", "value")] if "key_value" in part else [part]
    return [f"model.{side}.layers.{number}.{_PARTS[one]}.{kind}" for one in parts]


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
        if name in _TABLES[config.share]:
            vocabulary = source if name.startswith("source.") else target
            size = _size(vocabulary)
            same = [n for n in _TABLES[config.share][name] if n in left] or [_TABLES[config.share][name][0]]
            tables = [take(n, (size, config.width)) for n in same]
            if not all(torch.equal(tables[0], table) for table in tables[1:]):
                raise ModelError(f"{file}: {same[0]} and {same[1]} differ, and config.json says that they are one.")
            weights[name] = rows(tables[0], vocabulary)
        elif name == "output.bias":
            size = _size(target)
            bias = take(_BIAS, (1, size)) if _BIAS in left else torch.zeros(1, size)
            weights[name] = rows(bias.T, target)[:, 0]
        else:
            theirs = _their_names(name)
            shape = (parameter.shape[0] // len(theirs), *parameter.shape[1:])
            weights[name] = torch.cat([take(n, shape) for n in theirs])
    for side in ("encoder", "decoder"):
        left.pop(f"{side}.version", None)
        places = left.pop(f"model.{side}.embed_positions.weight", None)
        if places is not None:
            expected = torch.cat(sinusoids(torch.arange(len(places)), config.width), dim=-1)
            if places.shape != expected.shape or not torch.allclose(places.float(), expected, atol=1e-3):
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


def _in_halves(name: str, tensor: Tensor, width: int) -> Tensor:
    """A parameter of a model with interleaved sinusoids, its features (D) in the order that puts all sines first."""
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    if name == "output.weight" or name.endswith(("table.weight", "query.weight", "key_value.weight", "inner.weight")):
        return tensor[:, order]
    if ".output." in name or ".outer." in name or ".norm." in name:
        return tensor[order]
    return tensor


# -- import ------------------------------------------------------------------------------------------------------------


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
    config = settings.config(directory / "config.json")
    source, target = _vocabularies(directory, settings)
    file, held = _tensors(directory)
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
    golden = _golden(model.eval(), read, write, recipe.search, lines)
    bundle = Bundle(Path(out), recipe, read, write, tuple(golden), provenance, 0, {})
    found = None
    if verify and util.find_spec("transformers") is not None:
        other = HuggingFace(directory, (source.rows, target.rows), silent, held)
        found = compare(bundle, other, model=model)
        provenance = provenance.model_copy(
            update={"notes": {**provenance.notes, "verified": str(found).splitlines()[0]}}
        )
    bundles.save(out, recipe=recipe, weights=weights, source=read, target=write, provenance=provenance, golden=golden)
    return found


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
    search = SearchConfig(beam=settings.num_beams, penalty="power", alpha=settings.length_penalty)
    name = directory.resolve().name
    try:
        return recipes.validate(
            {
                "name": name,
                # What it was trained on is not known; who trains on names files of their own.
                "data": {"source": "train.source", "target": "train.target", **languages},
                "text": {"kind": kind, "size": size, "joint": config.share == "all", "byte_fallback": False},
                "model": config.model_dump(mode="json"),
                "search": search.model_dump(mode="json"),
            }
        )
    except RecipeError as error:
        raise ModelError(f"{directory}: {error}") from None


def _golden(
    model: Any, source: Tokenizer, target: Tokenizer, search: SearchConfig, lines: Sequence[str]
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


# -- export ------------------------------------------------------------------------------------------------------------


def write_marian(bundle: Bundle, directory: Path) -> None:
    """Write what MarianMTModel and MarianTokenizer load. Raises ModelError for a model that Marian cannot be."""
    config = bundle.recipe.model
    _refuse(bundle)
    model = bundle.model()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    if config.positions == "sinusoidal":
        weights = {name: _in_halves(name, tensor, config.width) for name, tensor in weights.items()}
    bias = weights.pop("output.bias", torch.zeros(len(bundle.target)))
    theirs = {_BIAS: bias[None]}
    for name, tensor in weights.items():
        if name in _TABLES[config.share]:
            theirs[_TABLES[config.share][name][0]] = tensor
        else:
            names = _their_names(name)
            theirs.update(zip(names, tensor.chunk(len(names)), strict=True))
    save_file(
        {n: t.contiguous() for n, t in theirs.items()}, directory / "model.safetensors", metadata={"format": "pt"}
    )
    vocabularies = {"vocab.json": marian_names(bundle.source)}
    if config.share != "all":
        vocabularies["target_vocab.json"] = marian_names(bundle.target)
    for file, tokens in vocabularies.items():
        _write_json(directory / file, {token: id_ for id_, token in enumerate(tokens)})
    for file, tokenizer in (("source.spm", bundle.source), ("target.spm", bundle.target)):
        (directory / file).write_bytes(tokenizer.to_bytes())
    search = bundle.recipe.search
    specials = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END, "decoder_start_token_id": BEGIN}
    _write_json(
        directory / "config.json",
        {
            "architectures": ["MarianMTModel"],
            "model_type": "marian",
            "vocab_size": len(bundle.source),
            "decoder_vocab_size": len(bundle.target),
            "d_model": config.width,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_attention_heads": config.heads,
            "decoder_attention_heads": config.heads,
            "encoder_ffn_dim": config.feedforward,
            "decoder_ffn_dim": config.feedforward,
            "activation_function": "swish" if config.activation == "silu" else config.activation,
            "dropout": config.dropout,
            "activation_dropout": config.activation_dropout,
            "scale_embedding": True,
            "static_position_embeddings": True,
            "normalize_before": False,
            "max_position_embeddings": _MAX_POSITIONS,
            "share_encoder_decoder_embeddings": config.share == "all",
            "tie_word_embeddings": config.share != "none",
            "forced_eos_token_id": None,
            "is_encoder_decoder": True,
            **specials,
        },
    )
    _write_json(directory / "generation_config.json", {**specials, **_generation(search), "max_length": _MAX_POSITIONS})
    about = {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": bundle.source.tokens([UNK])[0],
        "eos_token": bundle.source.tokens([END])[0],
        "pad_token": bundle.source.tokens([PAD])[0],
        "separate_vocabs": config.share != "all",
        "model_max_length": _MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "source_lang": bundle.recipe.data.source_language or None,
        "target_lang": bundle.recipe.data.target_language or None,
    }
    _write_json(directory / "tokenizer_config.json", about)


def _generation(search: SearchConfig) -> dict[str, Any]:
    """Their names of our search's settings."""
    if search.beam == 1:
        return {"num_beams": 1, "do_sample": False}
    alpha = 0.0 if search.penalty == "none" else search.alpha
    return {"num_beams": search.beam, "length_penalty": alpha, "early_stopping": "never", "do_sample": False}


def _refuse(bundle: Bundle) -> None:
    """ModelError for what MarianMTModel or MarianTokenizer cannot do."""
    config = bundle.recipe.model
    head = config.width / config.heads
    wrong = [
        (config.norm == "pre", 'model.norm = "pre": Marian there is post-norm only'),
        (
            config.positions not in ("sinusoidal", "sinusoidal-halves"),
            f'model.positions = "{config.positions}": Marian there has sinusoids only',
        ),
        *((key != "positions", f"{what}: Marian there has none") for key, what in config.beyond.items()),
        (
            not {config.key_width, config.value_width} <= {0, head},
            "model.key_width and model.value_width: Marian's heads there are all width / heads wide",
        ),
        (
            config.share == "all" and marian_names(bundle.source) != marian_names(bundle.target),
            "shared embeddings with two vocabularies that name their tokens otherwise: Marian there has one vocab.json",
        ),
        (
            {bundle.source.normalization, bundle.target.normalization} != {"identity"},
            f'text.normalization = "{bundle.source.normalization}": MarianTokenizer does not normalise',
        ),
    ]
    reasons = [reason for refused, reason in wrong if refused]
    if reasons:
        other = "" if config.beyond.keys() - {"score"} else " Try --to ctranslate2."
        raise ModelError(f"{bundle.path}: cannot become a Marian model: {'; '.join(reasons)}.{other}")


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


# -- beside transformers -----------------------------------------------------------------------------------------------


class HuggingFace:
    """A directory as transformers reads it, behind our ids.

    `rows` are its ids of our source's and target's, and `silent` those of ours that it may not write; left out, its
    ids are ours. `held` are its tensors if they were read already.
    """

    stop: Literal["bound", "beam"] = "bound"

    def __init__(
        self,
        directory: Path,
        rows: tuple[Sequence[int], Sequence[int]] | None = None,
        silent: Sequence[int] = (),
        held: Mapping[str, Tensor] | None = None,
    ) -> None:
        from transformers import MarianConfig, MarianMTModel, MarianTokenizer

        self.name = f"transformers {metadata.version('transformers')}"
        self.tokenizer: Any
        self.model: Any
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it recommends another package
                self.tokenizer = MarianTokenizer.from_pretrained(directory, local_files_only=True)
            if held is None:
                self.model = MarianMTModel.from_pretrained(directory, local_files_only=True)
            else:
                self.model = MarianMTModel(MarianConfig.from_dict(_json(directory / "config.json")))
                self.model.load_state_dict({name: tensor.float() for name, tensor in held.items()}, strict=False)
        except (OSError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(
                f"{directory}: {self.name} cannot read it ({reason}); --no-verify does without."
            ) from error
        self.model.float().eval()
        self.model.generation_config.forced_eos_token_id = None  # an output that is cut is not ended here either
        same = range(max(self.model.config.vocab_size, self.model.config.decoder_vocab_size))
        self.source, self.target = rows or (same, same)
        # What is silent here for want of a row there, or because its row is written by another id, is no matter there.
        written = {self.target[i] for i in range(len(self.target)) if i not in silent}
        self.suppressed = sorted({self.target[i] for i in silent} - written - {-1})

    def reads(self, line: str, ids: Sequence[int]) -> bool:
        """See `Other`."""
        return self.tokenizer(line).input_ids[:-1] == [self.source[i] for i in ids]  # type: ignore[no-any-return]

    @torch.inference_mode()
    def translate(self, source: Sequence[int], search: SearchConfig, limit: int) -> list[int]:
        """See `Other`."""
        found = self.model.generate(
            input_ids=self._read(source),
            max_new_tokens=limit,
            suppress_tokens=self.suppressed or None,
            **_generation(search),
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
