"""Models of other libraries: what comes in computes the same, what goes out does there, what cannot go says why."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from bundles import ENGLISH, GERMAN, small_bundle
from marians import marian
from safetensors.torch import load_file, save_file

from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import RegardError
from regard.exchange import export, import_marian
from regard.exchange.compare import compare
from regard.exchange.ctranslate2 import CTranslate2
from regard.exchange.huggingface import HuggingFace
from regard.exchange.vocabulary import with_tokens
from regard.inspection.inspect import verify
from regard.search.table import SearchConfig
from regard.tasks.decode import decode
from regard.text import BEGIN, END, PAD, Tokenizer
from regard.text.subwords import tokens_of

transformers = pytest.importorskip("transformers", reason="needs the dev extra's transformers")
pytest.importorskip("ctranslate2", reason="needs the dev extra's ctranslate2")

LINES = [*ENGLISH, "A man, 42 years old!", "  two   spaces ", "Ünïcode ½ ﬁ", "日本 unknown", "dot . dot ,"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian(tmp_path_factory.mktemp("marian") / "opus-mt-en-de")


@pytest.fixture(scope="module")
def imported(directory: Path) -> Path:
    out = directory.parent / "bundle"
    found = import_marian(directory, out, lines=ENGLISH[:3])
    assert found is not None
    assert found.largest < 1e-5
    assert found.differing == ()
    return out


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.MarianTokenizer.from_pretrained(directory, local_files_only=True)


# -- import ------------------------------------------------------------------------------------------------------------


def test_an_imported_bundle_is_a_bundle(imported: Path) -> None:
    bundle = bundles.load(imported)
    verify(bundle)
    assert bundle.recipe.search.model_dump(include={"beam", "penalty", "alpha"}) == {
        "beam": 2,
        "penalty": "power",
        "alpha": 1.0,
    }
    assert (bundle.recipe.data.source_language, bundle.recipe.data.target_language) == ("en", "de")
    assert [g.source for g in bundle.golden] == ENGLISH[:3]
    assert len(bundle.source) == len(bundle.target)


@pytest.mark.parametrize("line", [*LINES, ">>de<< A man is smiling.", "A ß man ü", "ßß Bär", "ü", "日ü"])
def test_text_becomes_the_tokens_that_marians_tokenizer_makes(line: str, imported: Path, tokenizer: Any) -> None:
    bundle = bundles.load(imported)
    theirs = tokenizer.convert_ids_to_tokens(tokenizer(line).input_ids[:-1])
    known = set(tokenizer.get_vocab())
    ours = [p.removeprefix("\u2581") if ">>" in p else p for p in bundle.source.tokens(bundle.source.encode(line))]
    # What only SentencePiece knows is unknown to Marian; here it keeps its name and has the unknown's vector.
    assert [p if p in known else "<unk>" for p in ours] == theirs
    if line == "ü":  # only the target's SentencePiece model has it
        assert ours == ["\u2581", "ü"]


@pytest.mark.parametrize("line", [*GERMAN, "ein 日 Mann", "Xylophon q"])
def test_ids_become_the_text_that_marians_tokenizer_makes(line: str, imported: Path, tokenizer: Any) -> None:
    bundle = bundles.load(imported)
    names = bundle.target.tokens(range(len(bundle.target)))
    theirs = tokenizer(text_target=line).input_ids[:-1]
    ours = [names.index(token) for token in tokenizer.convert_ids_to_tokens(theirs)]
    assert bundle.target.decode(ours) == tokenizer.decode(theirs, skip_special_tokens=True)
    assert ours == [i if names[i] in tokenizer.get_vocab() else 1 for i in bundle.target.encode(line)]


def test_there_and_back_logits_are_the_same(directory: Path, imported: Path) -> None:
    out = directory.parent / "back"
    found = export(imported, "huggingface", out)
    assert found is not None
    assert found.differing == ()
    first, second = (
        transformers.MarianMTModel.from_pretrained(d, local_files_only=True).eval() for d in (directory, out)
    )
    vocabularies = [json.loads((d / "vocab.json").read_text("utf-8")) for d in (directory, out)]
    shared = [name for name in vocabularies[0] if name in vocabularies[1] and name != "<pad>"]
    assert len(shared) == len(vocabularies[0]) - 1
    ids = [torch.tensor([v[name] for name in shared]) for v in vocabularies]
    rows = torch.randint(len(shared), (3, 9), generator=torch.Generator().manual_seed(1))
    logits = []
    with torch.no_grad():
        for model, known in zip((first, second), ids, strict=True):
            start = torch.full((3, 1), model.config.decoder_start_token_id)
            written = torch.cat((start, known[rows[:, :5]]), dim=1)
            logits.append(model(input_ids=known[rows], decoder_input_ids=written).logits[..., known])
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)


def test_back_again_ids_are_ours(imported: Path, directory: Path) -> None:
    """An export that is imported gives the bundle that it came from: the same ids, the same weights."""
    bundle = small_bundle(directory.parent / "ours", model={**SMALL, "positions": "sinusoidal-halves"})
    export(bundle.path, "huggingface", directory.parent / "ours-there", verify=False)
    import_marian(directory.parent / "ours-there", directory.parent / "ours-back", verify=False)
    again = bundles.load(directory.parent / "ours-back")
    weights = [load_file(b.path / "weights.safetensors") for b in (bundle, again)]
    assert torch.count_nonzero(weights[1].pop("output.bias")) == 0
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert [again.source.encode(line) for line in LINES] == [bundle.source.encode(line) for line in LINES]


def test_separate_vocabularies(tmp_path: Path) -> None:
    directory = marian(tmp_path / "separate", share=False, tie_word_embeddings=False)
    found = import_marian(directory, tmp_path / "bundle", lines=ENGLISH[:2])
    assert found is not None
    assert found.largest < 1e-5
    assert bundles.load(tmp_path / "bundle").recipe.model.share == "none"


SMALL = {"width": 32, "heads": 2, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}


class _Runs:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("it-ran"),)


def _config(**changes: Any) -> Any:
    def change(directory: Path) -> None:
        file = directory / "config.json"
        config = {**json.loads(file.read_text("utf-8")), **changes}
        file.write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}), encoding="utf-8")

    return change


def _cut(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def _pickle(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps({"model.shared.weight": _Runs()}))


def _extra(directory: Path) -> None:
    file = directory / "model.safetensors"
    save_file({**load_file(file), "model.encoder.layernorm_embedding.weight": torch.ones(32)}, file)


def _short_vocabulary(directory: Path) -> None:
    file = directory / "vocab.json"
    file.write_text(json.dumps(dict(list(json.loads(file.read_text("utf-8")).items())[:-2])), encoding="utf-8")


def _junk(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(bytes(range(256)) * 4)


def _pipe(name: str) -> Any:
    def change(directory: Path) -> None:
        (directory / name).unlink()
        os.mkfifo(directory / name)

    return change


def _header(directory: Path) -> None:
    file = directory / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[8:40] = b"\xff" * 32
    file.write_bytes(content)


def _infinite(directory: Path) -> None:
    file = directory / "model.safetensors"
    held = load_file(file)
    held["model.decoder.layers.0.fc1.bias"][0] = math.nan
    save_file(held, file)


def _hole(directory: Path) -> None:
    with (directory / "model.safetensors").open("r+b") as stream:
        stream.truncate(1 << 30)


MISTAKES = {
    "junk for a pickle": (_junk, "holds something other than tensors, or is damaged"),
    "a header of no tensors": (_header, "damaged or cut short"),
    "weights that are no numbers": (_infinite, "fc1.bias must hold finite real numbers"),
    "a sparse file of a gigabyte": (_hole, "must be a regular file of at most"),
    "SentencePiece as a pipe": (_pipe("source.spm"), "source.spm: must be a regular file"),
    "settings as a pipe": (_pipe("config.json"), "config.json: must be a regular file"),
    "weights as a pipe": (_pipe("model.safetensors"), "model.safetensors: must be a regular file"),
    "JSON without end": (lambda d: (d / "config.json").write_text("[" * 100_000), "is not JSON"),
    "millions of layers": (_config(encoder_layers=10**7), "encoder_layers = 10000000"),
    "a width for no machine": (_config(d_model=1 << 30), "d_model = 1073741824"),
    "a vocabulary for no machine": (_config(vocab_size=10**12), "belongs to another model"),
    "a penalty without end": (
        lambda d: (d / "generation_config.json").write_text('{"length_penalty": 1e999}'),
        "length_penalty",
    ),
    "another model": (_config(model_type="bart"), 'model_type = "bart"'),
    "a missing key": (_config(d_model="gone"), "d_model is missing"),
    "unscaled embeddings": (_config(scale_embedding=False), "scale_embedding = false"),
    "pre-norm": (_config(normalize_before=True), "normalize_before = true"),
    "an activation": (_config(activation_function="gelu_new"), 'activation_function = "gelu_new"'),
    "unequal heads": (_config(decoder_attention_heads=2), "decoder_attention_heads = 2"),
    "wrong sizes": (_config(encoder_ffn_dim=64, decoder_ffn_dim=64), "config.json asks for (64, 32)"),
    "more layers": (_config(decoder_layers=3), "is missing, and config.json asks for"),
    "cut short": (_cut, "damaged or cut short"),
    "a pickle with code": (_pickle, "a pickle can run code"),
    "a weight too many": (_extra, "layernorm_embedding.weight has no place"),
    "another vocabulary": (_short_vocabulary, "belongs to another model"),
    "no vocabulary": (lambda d: (d / "vocab.json").unlink(), "vocab.json: is missing"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "no SentencePiece": (lambda d: (d / "source.spm").write_bytes(b"no model"), "source.spm"),
    "another tokeniser": (lambda d: (d / "tokenizer_config.json").write_text("[]"), "must hold a JSON object"),
    "no JSON": (lambda d: (d / "config.json").write_text("{"), "is not JSON"),
}


@pytest.mark.parametrize(("spoil", "says"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_wrong_is_named(
    spoil: Any, says: str, directory: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(directory, "spoilt")
    spoil(Path("spoilt"))
    assert main(["import", "spoilt", "--out", "bundle"]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert not Path("bundle").exists()
    assert not Path("it-ran").exists()


def test_transformers_is_given_no_setting_that_is_not_known(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`attn_implementation` of a foreign config.json made it look for code to load."""
    shutil.copytree(directory, tmp_path / "there")
    _config(attn_implementation="kernels-community/anything", auto_map={"AutoModel": "code.py"})(tmp_path / "there")
    about = tmp_path / "there" / "tokenizer_config.json"
    about.write_text(
        json.dumps({**json.loads(about.read_text("utf-8")), "auto_map": {"AutoTokenizer": ["code", None]}})
    )
    given: list[dict[str, Any]] = []
    plain = transformers.MarianConfig.__init__

    def watched(self: Any, *arguments: Any, **settings: Any) -> None:
        given.append(settings)
        plain(self, *arguments, **settings)

    monkeypatch.setattr(transformers.MarianConfig, "__init__", watched)
    found = import_marian(tmp_path / "there", tmp_path / "bundle", lines=ENGLISH[:2])
    assert found is not None
    assert found.differing == ()
    assert given
    assert not [key for settings in given for key in settings if "attn" in key or "auto" in key]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "source.spm", "config.json", "vocab.json", "generation_config.json"]
)
def test_bytes_that_were_changed_are_refused_in_a_sentence_or_harmless(
    name: str, directory: Path, tmp_path: Path
) -> None:
    """A short fuzz: whatever a few changed bytes make of a file, nothing but RegardError comes out of it."""
    shutil.copytree(directory, tmp_path / "there")
    file = tmp_path / "there" / name
    content = file.read_bytes()
    draw = random.Random(name)
    for number in range(40):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 3, 30))):
            changed[draw.randrange(min(len(changed), draw.choice((64, 2000, len(changed)))))] = draw.randrange(256)
        file.write_bytes(changed)
        with contextlib.suppress(RegardError):
            import_marian(tmp_path / "there", tmp_path / f"bundle{number}", lines=["A man"], verify=False)


def test_an_export_says_what_is_read_otherwise_there(tmp_path: Path) -> None:
    """MarianTokenizer takes a tag off a line, knows special tokens by their text and strips what it writes."""
    bundle = small_bundle(tmp_path / "bundle", model=SMALL)
    found = export(bundle.path, "huggingface", tmp_path / "there")
    assert found is not None
    for what in (">>…<<", "</s>", "U+2581", "control characters"):
        assert what in str(found).splitlines()[-1]
    other = export(bundle.path, "ctranslate2", tmp_path / "ct2")
    assert other is not None
    assert other.otherwise == ()


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2"])
@pytest.mark.parametrize(("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_who_may_read_an_export_is_for_the_umask_to_say(
    umask: int, file: int, folder: int, to: str, tmp_path: Path
) -> None:
    bundle = small_bundle(tmp_path / "bundle", model=SMALL)
    before = os.umask(umask)
    try:
        export(bundle.path, to, tmp_path / "there", verify=False)
    finally:
        os.umask(before)
    assert {f.name: f.stat().st_mode & 0o777 for f in (tmp_path / "there").iterdir()} == {
        f.name: file for f in (tmp_path / "there").iterdir()
    }
    assert (tmp_path / "there").stat().st_mode & 0o777 == folder


def test_weights_of_pytorch_are_read_too(directory: Path, imported: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    held = load_file(file)
    torch.save({**held, "lm_head.weight": held["model.shared.weight"]}, file.with_name("pytorch_model.bin"))
    file.unlink()
    import_marian(tmp_path / "old", tmp_path / "bundle", verify=False)
    weights = [load_file(d / "weights.safetensors") for d in (imported, tmp_path / "bundle")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


# -- export ------------------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre", "activation": "gelu"},
    "separate": {"separate": True, "activation": "silu"},
    "learned": {"positions": "learned", "max_positions": 300, "output_bias": True, "share": "target", "score": "dot"},
}


def kind_of_bundle(path: Path, kind: str, *, steps: int = 0) -> bundles.Bundle:
    """A small bundle, taught its few sentences for so many steps."""
    settings = dict(KINDS[kind])
    separate = settings.pop("separate", False)
    model = {**SMALL, "share": "none" if separate else "all", **settings}
    bundle = small_bundle(path, separate=separate, model=model, search={"beam": 4, "extra_length": 10, "alpha": 0.6})
    if not steps:
        return bundle
    network: Any = bundle.model()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    read, reading = toy.padded([[*bundle.source.encode(line), END] for line in ENGLISH])
    written, writing = toy.padded([[BEGIN, *bundle.target.encode(line)] for line in GERMAN])
    wanted, _ = toy.padded([[*bundle.target.encode(line), END] for line in GERMAN])
    for _ in range(steps):
        hidden, _ = network.decode(written, network.start(network.encode(read, reading), reading), writing)
        loss = torch.nn.functional.cross_entropy(
            network.project(hidden).flatten(0, 1), wanted.flatten(), ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = [bundle.source.encode(line) for line in ENGLISH[:3]]
    golden = [
        bundles.Golden(source=line, source_ids=read, target_ids=found.ids, output=bundle.target.decode(found.ids))
        for line, read, (found, *_) in zip(ENGLISH, ids, decode(network, ids, bundle.recipe.search), strict=False)
    ]
    bundles.save(
        path,
        recipe=bundle.recipe,
        weights={name: parameter.detach() for name, parameter in network.named_parameters()},
        source=bundle.source,
        target=bundle.target,
        provenance=bundle.provenance,
        golden=golden,
    )
    return bundles.load(path)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A taught bundle of a kind, made once."""
    place = tmp_path_factory.mktemp("taught")
    return functools.cache(lambda kind: kind_of_bundle(place / kind, kind, steps=30))


@pytest.mark.parametrize("kind", KINDS)
def test_ctranslate2_translates_the_same(kind: str, taught: Any, tmp_path: Path) -> None:
    bundle = taught(kind)
    found = export(bundle.path, "ctranslate2", tmp_path / "there")
    assert found is not None
    assert found.largest < 1e-5
    other = CTranslate2(tmp_path / "there", bundle)
    model: Any = bundle.model()
    sources = [bundle.source.encode(line) for line in ENGLISH]
    for beam in (1, 4):
        for alpha in (0.0, 0.6):
            search = SearchConfig(beam=beam, penalty="power", alpha=alpha, stop=other.stop, extra_length=10)
            ours = [found[0].ids for found in decode(model, sources, search)]
            assert [other.translate(ids, search, len(ids) + 10) for ids in sources] == ours


@pytest.mark.parametrize("kind", ["post", "separate"])
def test_hugging_face_translates_the_same(kind: str, taught: Any, tmp_path: Path) -> None:
    bundle = taught(kind)
    found = export(bundle.path, "huggingface", tmp_path / "there")
    assert found is not None
    assert found.largest < 1e-5
    assert found.differing == ()
    other = HuggingFace(tmp_path / "there")
    assert all(other.reads(line, bundle.source.encode(line)) for line in LINES)


def test_quantized(tmp_path: Path, capsys: Any) -> None:
    small_bundle(tmp_path / "bundle")
    there = tmp_path / "there"
    line = ["export", str(tmp_path / "bundle"), "--to", "ctranslate2", "--out", str(there), "--quantization", "int8"]
    assert main(line) == 0
    assert "golden sentences come out the same" in capsys.readouterr().err
    assert {f.name for f in there.iterdir()} == {
        "config.json",
        "model.bin",
        "shared_vocabulary.json",
        "source.spm",
        "target.spm",
    }
    assert main(line) == 2
    assert "is in the way" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("pre", ["--to", "huggingface"], "post-norm only"),
        ("learned", ["--to", "huggingface"], "sinusoids only"),
        ("post", ["--to", "onnx"], "must be one of huggingface, ctranslate2"),
        ("post", ["--to", "huggingface", "--quantization", "int8"], "--quantization is CTranslate2's"),
        ("post", ["--to", "ctranslate2", "--quantization", "int3"], "must be one of float32"),
    ],
)
def test_what_cannot_be_exported_says_why(
    kind: str, arguments: list[str], says: str, tmp_path: Path, capsys: Any
) -> None:
    kind_of_bundle(tmp_path / "bundle", kind)
    assert main(["export", str(tmp_path / "bundle"), *arguments, "--out", str(tmp_path / "there")]) == 2
    assert says in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]


def test_an_export_that_computes_otherwise_is_found_out(tmp_path: Path) -> None:
    bundle = small_bundle(tmp_path / "bundle")
    export(bundle.path, "huggingface", tmp_path / "there", verify=False)
    file = tmp_path / "there" / "model.safetensors"
    held = load_file(file)
    held["model.decoder.layers.0.fc1.bias"] += 0.1
    save_file(held, file, metadata={"format": "pt"})
    with pytest.raises(RegardError, match="computes other log-probabilities"):
        compare(bundle, HuggingFace(tmp_path / "there"))


# -- SentencePiece's format --------------------------------------------------------------------------------------------


def test_tokens_in_another_order_segment_the_same() -> None:
    tokenizer = Tokenizer.train([*ENGLISH, *GERMAN], size=400, kind="unigram")
    tokens = tokens_of(tokenizer.to_bytes())
    first, rest = tokens[:4], tokens[4:]
    turned = Tokenizer(with_tokens(tokenizer.to_bytes(), [*first, *reversed(rest)], unknown_surface=""))
    for line in LINES:
        assert turned.tokens(turned.encode(line)) == tokenizer.tokens(tokenizer.encode(line))
        assert turned.decode(turned.encode(line)) == line
    assert (PAD, BEGIN, END) == (0, 2, 3)
