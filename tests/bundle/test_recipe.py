"""Recipes: TOML and back is the identity; a mistake is answered with its place, its rule and the way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import recipe
from regard.apps.training import read_recipe
from regard.errors import RecipeError
from regard.models import FAMILIES
from regard.planning.commented import template

DATA = '[data]\nsource = "a.en"\ntarget = "a.de"\n'
TEXT = '[data]\ntext = "a.en"\n'
CONTEXT = TEXT + 'valid_text = "b.en"\ncontext = 8\n'


def test_the_commented_recipe_parses_and_names_every_default() -> None:
    written = template()
    made = recipe.parse(written)
    plain = recipe.parse('name = "my-translator"\n[data]\nsource = "train.source"\ntarget = "train.target"\n')
    assert made == plain, "a recipe that writes every default out is the one that leaves them out"
    for field in type(made.train).model_fields:
        assert f"\n{field} = " in written


def test_the_commented_recipe_takes_values() -> None:
    made = recipe.parse(
        template(
            {
                "model": {"width": 128},
                "data": {
                    "source": ["a", "b"],
                    "target": ["c", "d"],
                    "filters": {"max_length": 7},
                    "test": {"x": {"source": "s", "reference": "r"}},
                },
            }
        )
    )
    assert made.model.width == 128
    assert made.data.sources == ("a", "b")
    assert made.data.filters.max_length == 7
    assert made.data.test["x"].reference == "r"


@settings(max_examples=60, deadline=None)
@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    seed=st.integers(0, 2**31 - 1),
    rate=st.floats(1e-12, 1e6),
    symbols=st.lists(st.sampled_from(["<2de>", "<2zh>", 'quote"', "back\\slash"]), unique=True),
    smoothing=st.floats(0, 0.99),
)
def test_toml_and_back_is_the_identity(name: str, seed: int, rate: float, symbols: list[str], smoothing: float) -> None:
    made = recipe.validate(
        {
            "name": name,
            "seed": seed,
            "data": {"source": "a", "target": "b", "test": {"flickr 2016": {"source": "x", "reference": "y"}}},
            "text": {"symbols": symbols},
            "model": {"width": 96, "heads": 3},
            "train": {"learning_rate": rate, "label_smoothing": smoothing},
        }
    )
    assert recipe.parse(recipe.to_toml(made)) == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DATA + "[train]\nwarmpu = 3", "[train] warmpu: unknown key; did you mean warmup?"),
        (DATA + "[trian]\nwarmup = 3", "[trian]: unknown table; did you mean train?"),
        (DATA + "[model]\nsize = 3", "[model] size: unknown key here; did you mean [text] size?"),
        (
            DATA + "[model]\nhops = 3",
            "[model] hops: unknown key; it is of the families self-attentive. Known here: family, ",
        ),
        (DATA + "[train]\nseed = 3", "[train] seed: unknown key here; did you mean seed, before the first table?"),
        (DATA + "[data.filters]\nmax_lenght = 3", "[data.filters] max_lenght: unknown key; did you mean max_length?"),
        (DATA + "[train]\nxyz = 3", "[train] xyz: unknown key; known here: objective, start_from, max_updates, "),
        (DATA + "[train]\nwarmup = -3", "[train] warmup = -3: must be at least 0 ("),
        (DATA + '[train]\nwarmup = "many"', '[train] warmup = "many": must be a whole number ('),
        (DATA + "[train]\nwarmup = 1.5", "[train] warmup = 1.5: must be a whole number ("),
        (DATA + '[train]\nlearning_rate = "1"', '[train] learning_rate = "1": must be a number ('),
        (DATA + '[train]\nschedule = "cosin"', "; did you mean cosine?"),
        (DATA + '[model]\nfamily = "transfomer"', "did you mean transformer?"),
        (DATA + f"[model]\nwidth = {10**23}", "must be at most 10000000000"),
        (DATA + f"[model]\nwidth = {10**10 - 1}\nheads = 6", "heads (6) must divide width (9999999999); try 3 or 9"),
        (DATA + "[model]\nwidth = 512\nheads = 6", "[model]: heads (6) must divide width (512); try 4 or 8"),
        (DATA + '[text]\nsymbols = "x"', '[text] symbols = "x": must be a list ('),
        (DATA + "[search.beam]\nx = 1", "[search] beam: is a table here, and must be a single value ("),
        ("seed = 1", "[data]: must be given ("),
        ('[data]\ntarget = "b"', "[data]: no text is named: give source (and target) for pairs of lines, or text "),
        ('[data]\ntext = "a"\nsource = "b"', "[data]: text is one side and source one of two; leave one of them out."),
        (
            '[data]\ntext = "a"\ncontext = 8',
            "[data]: context makes one stream of the text, of which no lines can be held",
        ),
        (DATA + "context = 8", "[data]: valid_text and context are for text of one side; name it in text"),
        (
            DATA + 'labels = "first"',
            '[data]: labels = "first" finds each label before its text; name such files in source',
        ),
        (
            DATA + '[model]\nfamily = "gpt"',
            "train.objective = 'language-model' learns from text of one side and the data are pairs",
        ),
        (
            DATA + '[train]\nobjective = "masked-lm"',
            "'masked-lm' is not for model.family = 'transformer', an encoder-decoder; it can: ",
        ),
        (TEXT + '[model]\nfamily = "gpt"\nheads = 5', "[model]: heads (5) must divide width (768) into even parts;"),
        (
            CONTEXT + '[model]\nfamily = "bert"',
            "data.context cuts a stream to be continued, and train.objective = 'masked-lm'",
        ),
        (
            DATA + '[text]\ntarget_kind = "words"',
            'text.target_kind = "words" needs a vocabulary of its own; set text.joint',
        ),
        (
            DATA + '[model]\nfamily = "bert-classifier"\n[train]\nvalidate_with = "bleu"',
            "train.validate_with = 'bleu' is not for train.objective = 'classify'; choose loss or accuracy.",
        ),
        (
            DATA + '[train]\nvalidate_with = "accuracy"',
            "train.validate_with = 'accuracy' is not for train.objective = 'translate'; choose loss or bleu.",
        ),
        (
            TEXT + '[model]\nfamily = "gpt"\n[train]\nvalidate_with = "bleu"',
            "train.validate_with = 'bleu' is not for train.objective = 'language-model'; choose loss.",
        ),
        (DATA + '[data.test."../../x"]\nsource = "a"\nreference = "b"', "a test set cannot be called '../../x'"),
        (DATA + 'source_language = "<img onerror=x>"', "'<img onerror=x>' is not a language code; use one like 'de'"),
        ("data = 3", "[data] = 3: must be a table ("),
        ("[data", "not valid TOML: "),
    ],
)
def test_a_mistake_is_answered_with_place_rule_and_way_out(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe.parse(text, name="my.toml")
    assert message in str(error.value)
    assert all(line.startswith("my.toml: ") for line in str(error.value).splitlines())
    assert len(str(error.value).splitlines()) == 1


def test_several_mistakes_are_told_together() -> None:
    with pytest.raises(RecipeError) as error:
        recipe.parse(DATA + "[train]\nwarmpu = 3\nlearning_rate = -1\n[search]\nbeam = 0")
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == [
        "[train] learning_rate = -1",
        "[train] warmpu",
        "[search] beam = 0",
    ]


def test_variables_are_filled_in_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[data]\nsource = "${REGARD_DATA}/a.en"\ntarget = "${REGARD_DATA}/a.de"\n', encoding="utf-8")
    assert recipe.load(file, {"REGARD_DATA": "/corpora"}).data.source == "/corpora/a.en"
    said = r"\[data\] source = .* \$\{REGARD_DATA\} has no value that is a file or folder here; .*export REGARD_DATA"
    with pytest.raises(RecipeError, match=said):
        recipe.load(file, {})


def test_the_command_line_fills_in_what_names_a_folder_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[data]\nsource = "${THERE}/a"\ntarget = "${PASSWORD}"\n', encoding="utf-8")
    monkeypatch.setenv("THERE", str(tmp_path))
    monkeypatch.setenv("PASSWORD", "swordfish")
    monkeypatch.setenv("LS_COLORS", "*.tar=01;31:" * 100)  # longer than any path may be
    with pytest.raises(RecipeError, match=r"\$\{PASSWORD\} has no value"):
        read_recipe(file, None)
    found = read_recipe(file, ["data.target=b"])
    assert (found.data.source, found.data.target) == (f"{tmp_path}/a", "b")


def test_overrides_replace_values_and_are_checked_like_the_file() -> None:
    made = recipe.parse(
        DATA,
        overrides=[
            "train.learning_rate=0.5",
            "text.kind=unigram",
            'name="a = b"',
            "data.source=x.en",
            "data.filters.max_length=9",
        ],
    )
    assert (made.train.learning_rate, made.text.kind, made.name) == (0.5, "unigram", "a = b")
    assert (made.data.source, made.data.filters.max_length) == ("x.en", 9)
    with pytest.raises(RecipeError, match="beem: unknown key; did you mean beam"):
        recipe.parse(DATA, overrides=["search.beem=4"])
    for wrong in ("beam", "search.=3", "=3", "data.source.x=3"):
        with pytest.raises(RecipeError, match="--set"):
            recipe.parse(DATA, overrides=[wrong])


def test_a_recipe_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read"):
        recipe.load(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(RecipeError, match="not UTF-8"):
        recipe.load(tmp_path / "latin.toml")


def test_the_objective_follows_from_the_family_and_the_data() -> None:
    asked = [
        (DATA, "", "translate"),
        (TEXT, "", "denoise"),
        (CONTEXT, "gpt", "language-model"),
        (TEXT, "bert", "masked-lm"),
        (DATA, "bert-classifier", "classify"),
    ]
    for data, family, wanted in asked:
        found = recipe.parse(data + (f'[model]\nfamily = "{family}"\n' if family else ""))
        assert found.objective == wanted
        assert recipe.parse(recipe.to_toml(found)) == found
    assert recipe.parse(TEXT + '[text]\nsymbols = ["<x>"]\n[model]\nfamily = "bert"').spelling.symbols == (
        "<mask>",
        "<x>",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DATA + "[train]\nlearning_rate = inf", "[train] learning_rate = inf: must be a finite number."),
        (DATA + "[model]\nwidth = " + "9" * 5000, "not valid TOML: "),
        (DATA + "[text]\nsymbols = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        (".".join("a" * 20_000) + " = 1", "nested too deeply"),
        ("a = " + "{a=" * 2000 + "1" + "}" * 2000, "nested too deeply"),
        ("# " + "x" * 2_000_000, "which is too much for a recipe"),
        (DATA + "[model]\nfamily = 3", "[model] family = 3: must be one of "),
        ("model = 3\n" + DATA, "[model] = 3: must be a table"),
        ('name = "${HOME}"\n' + DATA, "variables such as ${HOME} stand for folders"),
    ],
    ids=lambda value: value[:30],
)
def test_what_would_exhaust_memory_or_time_is_refused_at_once(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe.parse(text, {"HOME": "secret"}, name="my.toml")
    assert message in str(error.value)
    assert len(str(error.value)) < 2000


def test_many_mistakes_are_explained_in_part() -> None:
    with pytest.raises(RecipeError) as error:
        recipe.parse(DATA + "[train]\n" + "".join(f"wrong{number} = 1\n" for number in range(5000)))
    assert len(str(error.value).splitlines()) == 20


def test_the_keys_and_values_of_older_recipes_are_named_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recipe.RENAMED_VALUES, ("train", "schedule"), {"inverse": "inverse-sqrt"})
    older = DATA + '[train]\nrate = 0.5\nschedule = "inverse"'
    with pytest.raises(
        RecipeError, match=r'\[train\] schedule = "inverse": this is called "inverse-sqrt" now'
    ) as error:
        recipe.parse(older)
    assert "[train] rate: this key is called learning_rate now" in str(error.value)
    read = recipe.parse(older, trained=True)
    assert (read.train.learning_rate, read.train.schedule) == (0.5, "inverse-sqrt")


def test_an_older_key_beside_a_wrong_value_is_a_mistake_like_any_other() -> None:
    with pytest.raises(RecipeError, match=r"regularizers = 3: must be a table"):
        recipe.parse(DATA + "[train]\nregularizers = 3\ndamping = 0.1", trained=True)


def test_a_family_added_later_is_known_to_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    page = FAMILIES["transformer"]

    class Config(page.config):  # type: ignore[name-defined, misc]  # the class is known only at run time
        family: Literal["mine"] = "mine"
        wings: int = 2

    monkeypatch.setitem(FAMILIES, "mine", replace(page, config=Config))
    made = recipe.parse(DATA + '[model]\nfamily = "mine"\nwings = 4')
    assert made.model.wings == 4
    assert recipe.parse(recipe.to_toml(made)) == made
    assert "wings = 4" in recipe.to_toml(made, defaults=False)
    with pytest.raises(RecipeError, match=r"\[model\] wings: unknown key; it is of the families mine"):
        recipe.parse(DATA + "[model]\nwings = 4")
