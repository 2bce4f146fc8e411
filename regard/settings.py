"""What the tables `[data]` and `[train]` of a recipe may say. Using a model loads no training for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from regard.extensions import load_installed
from regard.text.lines import FIELDS, holds_both, is_code, split_tag


@dataclass(frozen=True)
class TargetKind:
    """What follows from what a target line is."""

    metrics: tuple[str, ...] = ()  # the only ones that score it; none: any that scores text
    one_token: bool = False  # each target is a single token of a closed vocabulary
    like_source: bool = True  # a target is about as long as its source, so that `filters.max_ratio` finds wrong pairs
    page: str = ""  # the module that checks its tokenizer and judges a bundle that writes it; none: it is plain text


TARGET_KINDS = {
    "text": TargetKind(),
    "labels": TargetKind(one_token=True, like_source=False),
    "trees": TargetKind(metrics=("brackets",), page="regard.parsing.judge"),
}
"""What `data.targets` names."""

_SET_NAME = re.compile(r"\w[\w.+@ -]*")


def check_set_name(name: str) -> None:
    """Raises ValueError for a name of a test set that cannot be a part of a file's name."""
    if not _SET_NAME.fullmatch(name):
        raise ValueError(
            f"a test set cannot be called {name!r}, for files are named after it; use letters, digits, '-', '_' and "
            "'.', a letter or digit first."
        )


class Filters(BaseModel, extra="forbid", frozen=True):
    """Which pairs are kept. Lengths are counted in tokens, so a language without spaces is treated like any other."""

    max_length: int = Field(256, ge=1, description="Drop a pair if either side has more tokens than this.")
    max_ratio: float = Field(
        9.0, ge=1.0, description="Drop a pair if one side has more than this many times the tokens of the other."
    )
    drop_empty: bool = Field(True, description="Drop a pair if either side is empty or only spaces.")
    drop_duplicates: bool = Field(False, description="Drop a pair that occurred before, both sides alike.")
    drop_identical: bool = Field(False, description="Drop a pair whose target is its source.")

    def reason(self, source: str, target: str, source_tokens: int, target_tokens: int, *, again: bool) -> str | None:
        """Why this pair is dropped: empty, identical, long, ratio, duplicate; None if it is kept.

        `again` says whether it occurred before (`Repeats`). Alike pairs share any other reason, so where it counts, the
        one before was kept; and so the reason is found without knowing what became of other pairs.
        """
        if self.drop_empty and not (source.strip() and target.strip()):
            return "empty"
        if self.drop_identical and split_tag(source)[1].strip() == target.strip():
            return "identical"
        if max(source_tokens, target_tokens) > self.max_length:
            return "long"
        # The end token is counted too, which is lenient with the very short.
        shorter, longer = sorted((source_tokens + 1, target_tokens + 1))
        if longer > self.max_ratio * shorter:
            return "ratio"
        return "duplicate" if again and self.drop_duplicates else None


class TestSet(BaseModel, extra="forbid", frozen=True):
    """A set that is only ever evaluated on: pairs, or text of one side."""

    __test__ = False  # not a test case for pytest

    source: str = Field(
        "",
        description="File of source lines; or one of both sides (.tsv, .jsonl, .parquet, .tmx), where a source that "
        "comes again in the next line has several references.",
    )
    reference: str = Field("", description="File of reference translations, or labels, untouched.")
    text: str = Field("", description="File of text, where training has one side only; or of lines as `labels` says.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.text and (self.source or self.reference):
            raise ValueError("has text and a source or reference; a test set is pairs, or text of one side.")
        if not self.text and not (self.source and (self.reference or holds_both(self.source))):
            raise ValueError(
                "needs source and reference, two files, or one file of both sides (.tsv, .jsonl, .parquet, .tmx) as "
                "source; or text, where training has one side only."
            )
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        return tuple(filter(None, (self.text, self.source, self.reference)))


class _Files:
    """Reads what a key names, one file, several or none, always as a tuple."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, config: BaseModel, owner: type[BaseModel]) -> tuple[str, ...]:
        value = getattr(config, self.key)
        return () if value is None else (value,) if isinstance(value, str) else value


Paths = str | tuple[str, ...] | None


class DataConfig(BaseModel, extra="forbid", frozen=True):
    """Files, languages, filters and batches."""

    source: Paths = Field(
        None,
        description="Source side: a text file or a list of them; or files with both sides (.tsv, .jsonl, .parquet, "
        ".tmx). Files of lines may end in .gz or .zst too.",
    )
    target: Paths = Field(
        None, description="Target side, line by line with the source; left out if the source's files hold both."
    )
    valid_source: Paths = Field(None, description="Validation source; if left out, `valid_lines` pairs are split off.")
    valid_target: Paths = Field(None, description="Validation target.")
    text: Paths = Field(
        None, description="Text of one side, instead of source and target: to be continued, filled in or denoised."
    )
    valid_text: Paths = Field(None, description="Validation text of one side.")
    context: int = Field(
        0,
        ge=0,
        description="Of text: one stream, each line with its end, cut into windows of so many tokens; 0: line by line.",
    )
    targets: str = Field(
        "text",
        description="What a target is: text, labels (each a class and one token) or trees (which are parsed and scored "
        "by brackets).",
    )
    labels: Literal["", "first"] = Field(
        "", description="first: the source's lines are a label, a space and the text; there is no target."
    )
    valid_lines: int = Field(
        1000, ge=1, description="Pairs split off for validation (at most a tenth), chosen by a hash of the source line."
    )
    fields: tuple[str, ...] = Field(
        FIELDS,
        min_length=1,
        max_length=2,
        description="The fields read from .jsonl and .parquet files and from dicts: of source and target, or the one "
        "of text (text, if left out); a.b is field b of a record in field a.",
    )
    source_language: str = Field("", description="Code of the source language, like 'en'; may be left empty.")
    target_language: str = Field("", description="Code of the target language, like 'de'; may be left empty.")
    licence: str = Field("", description="Licence of the text, for the bundle's model card.")
    target_languages: tuple[str, ...] = Field(
        (), description="Several target languages: each source line then starts with a tag, like '<2de> '."
    )
    test: dict[str, TestSet] = Field(default_factory=dict, description="Test sets by name: source and reference.")
    metrics: tuple[str, ...] = Field(
        (),
        description="What translations of dev and test sets are scored with beside BLEU; none named: chrf, ter, "
        "exact-match and perplexity.",
    )
    exclude: Paths = Field(
        None,
        description="Files of text that must not be learnt from: a pair is left out that has `exclude_words` in a row "
        "with a line of theirs, on either side.",
    )
    exclude_words: int = Field(
        8, ge=1, description="How many words, or characters of a script without spaces; of shorter lines all of them."
    )
    filters: Filters = Field(Filters(), description="Which pairs are kept.")
    layout: Literal["padded", "packed"] = Field(
        "packed", description="packed: sequences end to end, no padding; padded: rectangles of near-equal length."
    )
    batch_tokens: int = Field(
        4096,
        ge=0,
        description="Most tokens in a batch on either side, ends included, padding included if padded; "
        "0: as many as fit in memory when training begins, at most 25,000.",
    )
    pool: int = Field(50_000, ge=1, description="Lines that are sorted by length together.")
    cache: str | None = Field(
        None, description="Directory for the token store, shared between runs; by default inside the run's own."
    )

    @field_validator("targets")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        if value not in TARGET_KINDS:
            raise ValueError(f"targets = {value!r} is no kind of target; choose one of {', '.join(TARGET_KINDS)}.")
        return value

    @field_validator("source_language", "target_language", "target_languages")
    @classmethod
    def _language_codes(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for code in (value,) if isinstance(value, str) else value:
            if code and not is_code(code):
                raise ValueError(f"{code!r} is not a language code; use one like 'de', 'deu' or 'zh-Hant'.")
        return value

    @field_validator("test")
    @classmethod
    def _set_names(cls, value: dict[str, TestSet]) -> dict[str, TestSet]:
        for name in value:
            check_set_name(name)
        return value

    @model_validator(mode="after")
    def _scored(self) -> Self:
        only = self.target_kind.metrics
        if only and self.metrics not in ((), only):
            raise ValueError(f"targets = {self.targets!r} are scored by {', '.join(only)} alone; leave metrics out.")
        for kind, known in TARGET_KINDS.items():
            if not only and (wrong := [name for name in self.metrics if name in known.metrics]):
                raise ValueError(f"metrics has {wrong[0]}, which scores {kind}; set targets = {kind!r}, or leave it.")
        return self

    # The files of each kind as a tuple: none, one or more.
    sources: ClassVar[_Files] = _Files("source")
    target_files: ClassVar[_Files] = _Files("target")
    texts: ClassVar[_Files] = _Files("text")
    valid_sources: ClassVar[_Files] = _Files("valid_source")
    valid_target_files: ClassVar[_Files] = _Files("valid_target")
    valid_texts: ClassVar[_Files] = _Files("valid_text")
    excludes: ClassVar[_Files] = _Files("exclude")

    @property
    def target_kind(self) -> TargetKind:
        """What follows from what a target is."""
        return TARGET_KINDS["labels" if self.labels else self.targets]

    @property
    def trees(self) -> bool:
        """Whether target lines are trees."""
        return self.targets == "trees"

    @property
    def side(self) -> str:
        """What there is to learn from: pairs, text (of one side), or "" where a corpus is still to be handed in."""
        return "text" if self.texts else "pairs" if self.sources else ""

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language; "" for one that is not said."""
        return self.source_language, self.target_language

    @model_validator(mode="after")
    def _sides_match(self, info: ValidationInfo) -> Self:
        if (info.context or {}).get("trained"):
            return self
        if self.source is None and self.text is None and self.files + self.valid_files:
            raise ValueError("no text is named: give source (and target) for pairs of lines, or text for one side.")
        paired = {"source": self.source, "target": self.target, "valid_source": self.valid_source}
        if self.text is not None and (named := [key for key, value in paired.items() if value is not None]):
            raise ValueError(f"text is one side and {named[0]} one of two; leave one of them out.")
        if self.text is None and (self.valid_text is not None or self.context):
            raise ValueError("valid_text and context are for text of one side; name it in text, or leave them out.")
        if self.context and self.valid_text is None:
            raise ValueError(
                "context makes one stream of the text, of which no lines can be held out; cut off its end as another "
                "file (`head -n`, `tail -n`) and name that in valid_text."
            )
        if self.labels and (self.target_files or self.valid_target_files or self.text is not None):
            raise ValueError(
                'labels = "first" finds each label before its text; name such files in source, and leave out target, '
                "valid_target and text."
            )
        for source, target, name in (
            (self.sources, self.target_files, ""),
            (self.valid_sources, self.valid_target_files, "valid_"),
        ):
            if target and (whole := [file for file in source if holds_both(file)]):
                raise ValueError(f"{whole[0]} holds both sides; leave {name}target out.")
            if target and len(source) != len(target):
                raise ValueError(
                    f"{name}source names {len(source)} files but {name}target {len(target)}; "
                    "file n of one must go with file n of the other."
                )
        if self.source == () or self.text == ():
            raise ValueError("source and text name no file; name at least one.")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """All that is trained on."""
        return (*self.sources, *self.target_files, *self.texts)

    @property
    def valid_files(self) -> tuple[str, ...]:
        """All that is validated on; none if validation is split off."""
        return (*self.valid_sources, *self.valid_target_files, *self.valid_texts)


class TrainConfig(BaseModel, extra="forbid", frozen=True):
    """How weights are found; the defaults follow the paper (sections 5.3 and 5.4).

    Objectives, optimisers, schedules and regularisers are named as the visible tables of `regard.train` have them, to
    which a script may have added its own. A recipe that is to be trained is validated with these as its context.
    """

    objective: str = Field(
        "",
        description="what is learnt: translate, cmlm (translate at masked positions), denoise (fill gaps in text), "
        "language-model, masked-lm or classify; empty: what the model's family and the data are for",
    )
    start_from: str = Field(
        "",
        description="a bundle whose vocabularies are used, and its parameters of the same names and shapes begun with",
    )
    max_updates: int = Field(100_000, gt=0, description="optimiser updates in all")
    epochs: int = Field(0, ge=0, description="stop after this many epochs even if updates are left; 0: no limit")
    minutes: float = Field(
        0.0,
        ge=0,
        description="stop by the clock after so many minutes of batches and updates (no validating, no saving), the "
        "schedule ending there; not reproducible bit for bit; 0: no limit",
    )
    accumulate: int = Field(1, gt=0, description="batches whose gradients are summed for one update")
    optimizer: str = Field("adamw", description="how weights are changed: adamw, adafactor, lion, muon or sgd")
    schedule: str = Field(
        "paper", description="learning rate over time: paper, inverse-sqrt, cosine, linear, constant or plateau"
    )
    learning_rate: float = Field(
        1.0, gt=0, description="peak learning rate; with the paper's schedule a factor, 1 in the paper"
    )
    warmup: int = Field(4000, ge=0, description="updates of linear warm-up")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: what the rate is multiplied by")
    plateau_patience: int = Field(3, ge=0, description="plateau: validations without gain before that")
    beta1: float = Field(0.9, ge=0, lt=1, description="of momentum: Adam's beta 1, and Lion's")
    beta2: float = Field(0.98, ge=0, lt=1, description="of the second moment: Adam's beta 2; of Lion's momentum")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of matrices, not of norms and biases")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="mass spread evenly over the vocabulary")
    regularizers: dict[str, float] = Field(
        default_factory=dict,
        description="r-drop, word-dropout, word-replacement, token-weights, … each with its strength: docs/training.md",
    )
    clip: float = Field(0.0, ge=0, description="largest gradient norm; 0: no clipping")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16: products in bfloat16 beside float32 weights; auto: where it is quicker"
    )
    average: Literal["none", "last", "ema"] = Field(
        "last", description="weights of the bundle: as trained, the mean of the last few snapshots, or a moving average"
    )
    average_last: int = Field(5, gt=0, description="last: how many snapshots are averaged")
    average_every: int = Field(1000, gt=0, description="last: updates between snapshots")
    ema_decay: float = Field(0.999, gt=0, lt=1, description="ema: decay an update")
    validate_every: int = Field(1000, gt=0, description="updates between validations")
    validate_with: str = Field(
        "loss",
        description="what tells better from worse on the dev set: loss, bleu (translations) or accuracy (classes)",
    )
    patience: int = Field(0, ge=0, description="validations without gain before training stops; 0: never")
    keep: Literal["last", "best"] = Field("last", description="the bundle holds the last weights, or those best on dev")
    save_every: int = Field(500, gt=0, description="updates between checkpoints")
    keep_checkpoints: int = Field(2, gt=0, description="checkpoints left on disk")
    log_every: int = Field(50, gt=0, description="updates between lines of the log")
    chunk: int = Field(1024, gt=0, description="target tokens projected to the vocabulary at a time")
    checkpoint_activations: bool = Field(False, description="compute layers again in the backward pass: less memory")
    parallel: Literal["auto", "ddp", "fsdp"] = Field(
        "auto", description="under torchrun: all weights in each process (ddp, auto), or a part of each (fsdp)"
    )
    compile: bool = Field(True, description="on a GPU: PyTorch compiles the step, which takes minutes at the beginning")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")

    @field_validator("objective", "optimizer", "schedule", "regularizers")
    @classmethod
    def _known(cls, value: str | dict[str, float], info: ValidationInfo) -> str | dict[str, float]:
        table = (info.context or {}).get("tables", {}).get(info.field_name)
        if table is None or (info.field_name == "objective" and not value):
            return value
        for name in [value] if isinstance(value, str) else value:
            if name not in table and not (load_installed() and name in table):
                raise PydanticCustomError("unknown_name", "must be a known name", {"names": [*table], "name": name})
        return value

    @field_validator("regularizers")
    @classmethod
    def _at_least_0(cls, value: dict[str, float]) -> dict[str, float]:
        for name, strength in value.items():
            if not 0 <= strength < float("inf"):
                raise ValueError(f"{name} = {strength} is a strength, and must be a number of at least 0.")
        return value
