"""Every search by its name: `Translator.translate`, `Translator.stream` and `regard translate`."""

from __future__ import annotations

import io
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from bundles import ENGLISH, GERMAN, small_bundle

from regard.apps.cli import main
from regard.errors import RegardError
from regard.tasks.forced import forced
from regard.tasks.translate import Translator, load
from regard.terminology.automaton import occurs
from regard.terminology.constraints import PLACEHOLDER, Constraints, read_glossary
from regard.text import write_lines

LINES = ENGLISH[:4]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / "bundle"
    small_bundle(path, search={"beam": 3, "extra_length": 20})
    small_bundle(path.with_name("other"), seed=2)
    small_bundle(path.with_name("foreign"), separate=True)
    return path


@pytest.fixture(scope="module")
def translator(bundle: Path) -> Translator:
    return load(bundle)


SEARCHES: dict[str, dict[str, Any]] = {
    "samples": {"search": {"samples": 3, "temperature": 0.7, "top_p": 0.9}},
    "diverse": {"beam": 4, "n_best": 4, "search": {"groups": 2}},
    "coverage": {"beam": 3, "n_best": 2, "search": {"coverage": 0.3}},
    "rules": {"search": {"min_length": 4, "max_length": 12, "no_repeat_ngram_size": 2}},
    "required": {"beam": 3, "constraints": Constraints(include=("Haus",), forbid=("ein",), prefix="Der")},
    "mbr": {"search": {"samples": 4, "mbr": "chrf"}},
}


@pytest.mark.parametrize("name", [*SEARCHES])
def test_no_search_depends_on_the_batch(translator: Translator, name: str) -> None:
    whole = translator.translate(LINES, batch_size=4, **SEARCHES[name])
    single = translator.translate(LINES, batch_size=1, **SEARCHES[name])
    alone = translator.translate(LINES[2:3], first_line=3, **SEARCHES[name])
    for a, b in zip(whole, [*single[:2], *alone, single[3]], strict=True):
        assert [h.ids for h in a.hypotheses] == [h.ids for h in b.hypotheses]
        assert [h.score for h in a.hypotheses] == pytest.approx([h.score for h in b.hypotheses], rel=1e-10)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_reports_the_models_own_log_probability(translator: Translator, name: str) -> None:
    found = translator.translate(LINES[:2], precision="exact", **SEARCHES[name])
    model = translator.engine.model_for("exact")
    for line, translation in zip(LINES, found, strict=False):
        for candidate in translation.hypotheses:
            [made] = forced(model, [translator.source.encode(line)], [candidate.ids])
            values = made.log_probabilities
            assert candidate.log_probability == pytest.approx(sum(values if candidate.ended else values[:-1]), abs=1e-9)


def test_samples_are_several_and_repeatable(translator: Translator) -> None:
    asked: dict[str, Any] = {"search": {"samples": 3, "seed": 4}}
    found = translator.translate(LINES, **asked)
    assert all(len(t.hypotheses) == 3 for t in found)
    assert len({h.ids for t in found for h in t.hypotheses}) > 6
    assert found == translator.translate(LINES, **asked)
    cold = translator.translate(LINES, search={"samples": 1, "top_k": 1})
    assert [t.text for t in cold] == [t.text for t in translator.translate(LINES, beam=1)]


def test_what_is_required_stands_in_the_text_and_is_reported(translator: Translator) -> None:
    line = "{name} sent %s to https://example.org/a?b=1, see <x1>."
    wanted = ("{name}", "%s", "https://example.org/a?b=1", "<x1>")
    keep = Constraints(placeholders=True)
    for search in ({}, {"samples": 2}, {"groups": 3, "no_repeat_ngram_size": 1}):
        [found] = translator.translate([line], search={"extra_length": 40, **search}, constraints=keep)
        for candidate in found.hypotheses:
            assert all(text in candidate.text for text in wanted)
            assert candidate.met == wanted


def test_a_glossary_asks_for_its_terms_where_the_line_has_them(translator: Translator) -> None:
    glossary = read_glossary(["man\tHerr", "", "ladder\tSteigleiter"], "terms")
    first, fifth = translator.translate([ENGLISH[0], ENGLISH[4]], constraints=Constraints(glossary=glossary))
    assert first.hypotheses[0].met == ("Herr",)
    assert fifth.hypotheses[0].met == ("Herr", "Steigleiter")
    assert "Steigleiter" in fifth.text


def test_what_is_forbidden_is_forbidden_in_every_segmentation(translator: Translator) -> None:
    [free] = translator.translate(LINES[:1], search={"samples": 20})
    common = tuple(dict.fromkeys(word for h in free.hypotheses for word in h.text.split() if word.isalpha()))[:6]
    assert len(common) == 6
    [found] = translator.translate(LINES[:1], search={"samples": 20}, constraints=Constraints(forbid=common))
    assert len(found.hypotheses) > 10
    assert not any(occurs(word, h.text) for word in common for h in found.hypotheses)


def test_a_prefix_is_what_the_translation_begins_with(translator: Translator) -> None:
    each = [Constraints(prefix="Ein Ma"), Constraints()]
    found = translator.translate(LINES[:2], constraints=each)
    assert found[0].text.startswith("Ein Ma")
    assert found[1].text == translator.translate(LINES[1:2])[0].text


@pytest.mark.parametrize(
    ("constraints", "search", "message"),
    [
        (Constraints(include=("Haus am See",), forbid=("am",)), {}, r"line 1 requires 'Haus am See' and forbids 'am'"),
        (Constraints(include=("Haus am See",)), {"max_length": 2}, r"line 1: what is required needs \d+ tokens"),
        (Constraints(prefix="Das Haus am", forbid=("Haus",)), {}, "prefix contains a forbidden phrase"),
        (Constraints(include=(" ",)), {}, "is no phrase"),
        (Constraints(include=tuple("abcdefghi")), {}, "requires 9 phrases; at most 8"),
        (Constraints(), {"min_length": 30, "max_length": 3}, "must be at most max_length"),
        (Constraints(), {"min_length": 300}, "at least 300 tokens are asked for"),
        (Constraints(), {"groups": 2}, r"groups \(2\) must divide beam \(3\)"),
        (Constraints(), {"top_p": 0.5}, "set samples to at least 1"),
        (Constraints(), {"samples": 2, "coverage": 1}, "coverage belongs to a beam"),
        (Constraints(), {"temprature": 2}, "did you mean 'temperature'"),
        (Constraints(), {"stop": "soon"}, "stop = 'soon'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_reason(
    translator: Translator, constraints: Constraints, search: dict[str, Any], message: str
) -> None:
    with pytest.raises(RegardError, match=message):
        translator.translate(LINES[:1], constraints=constraints, search=search)


@pytest.mark.parametrize(
    "asked",
    [{"beam": 1}, {"beam": 3}, {"search": {"samples": 1, "seed": 3}}, {"constraints": Constraints(include=("Haus",))}],
    ids=str,
)
def test_a_stream_is_the_translation_in_parts(translator: Translator, asked: dict[str, Any]) -> None:
    for number, line in enumerate(["", *LINES], start=1):
        parts = list(translator.stream(line, number=number, **asked))
        [whole] = translator.translate([line], first_line=number, **asked)
        assert "".join(parts) == whole.text
        assert all(parts)


def test_a_sample_streams_token_by_token(translator: Translator) -> None:
    assert len(list(translator.stream(LINES[0], search={"samples": 1}))) > 5
    with pytest.raises(RegardError, match="chooses at the end"):
        next(translator.stream(LINES[0], search={"samples": 2, "mbr": "chrf"}))


def test_ensembles(bundle: Path, translator: Translator) -> None:
    same = load(bundle, with_=[bundle]).translate(LINES, n_best=2, precision="exact")
    for a, b in zip(same, translator.translate(LINES, n_best=2, precision="exact"), strict=True):
        assert [h.ids for h in a.hypotheses] == [h.ids for h in b.hypotheses]
        assert a.score == pytest.approx(b.score, rel=1e-10)
    both = load(bundle, with_=[bundle.with_name("other")])
    mixed = both.translate(LINES, search={"coverage": 0.1, "ensemble": "logs"})
    assert [t.log_probability for t in mixed] != pytest.approx([t.log_probability for t in same])
    with pytest.raises(RegardError, match="model 2 of the ensemble has another source vocabulary"):
        load(bundle, with_=[bundle.with_name("foreign")])


def test_minimum_bayes_risk_chooses_among_what_was_drawn(translator: Translator) -> None:
    drawn = translator.translate(LINES, search={"samples": 5})
    chosen = translator.translate(LINES, search={"samples": 5, "mbr": "bleu"}, n_best=5)
    for some, best in zip(drawn, chosen, strict=True):
        assert {h.text for h in best.hypotheses} == {h.text for h in some.hypotheses}
        utilities = [h.utility for h in best.hypotheses]
        assert utilities == sorted(utilities, key=lambda u: -(u or 0))
    single = translator.translate(LINES, search={"samples": 1, "mbr": "chrf"})
    assert [t.text for t in single] == [t.text for t in translator.translate(LINES, search={"samples": 1})]


def test_what_counts_as_a_placeholder() -> None:
    found = PLACEHOLDER.findall("{0} <b>50% so</b> %1$s %(day)s (http://a.org/x), 100%d <x1/> {a b} a<b")
    assert found == ["{0}", "<b>", "</b>", "%1$s", "%(day)s", "http://a.org/x", "%d", "<x1/>"]


def test_the_command_line(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_lines(source, LINES)
    write_lines(tmp_path / "terms", ["man\tHerr"])

    def run(*options: str) -> list[str]:
        assert main(["translate", str(bundle), str(source), *options]) == 0
        return capsys.readouterr().out.splitlines()

    assert len(run("--samples", "2", "--seed", "3", "--top-k", "5")) == 8
    assert len(run("--samples", "4", "--mbr", "chrf", "--temperature", "0.8")) == 4
    assert len(run("--beam", "4", "--groups", "2", "--diversity", "0.3", "--n-best", "2")) > 4
    assert all("Haus" in line for line in run("--include", "Haus", "--forbid", "in", "--stop", "first"))
    assert "Herr" in run("--glossary", str(tmp_path / "terms"), "--keep-placeholders", "--coverage", "0.1")[0]
    assert run("--with", str(bundle), "--ensemble", "logs") == run()
    assert run("--stream", "--beam", "1") == run("--beam", "1")
    assert all(
        line.startswith("Das") for line in run("--prefix", "Das", "--no-repeat-ngram-size", "3", "--max-length", "9")
    )
    assert main(["translate", str(bundle), str(source), "--stream", "--n-best", "2"]) == 2
    assert "one translation of each line" in capsys.readouterr().err
    assert main(["translate", str(bundle), str(source), "--split", "--samples", "2"]) == 2
    assert "--split cuts lines" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A man\n")))
    assert main(["translate", str(bundle), "--stream", "--min-length", "3"]) == 0
    assert capsys.readouterr().out.endswith("\n")


def test_no_output_is_longer_or_shorter_than_it_may_be(translator: Translator) -> None:
    for samples in (0, 2):
        for settings in ({"extra_length": 0}, {"extra_length": 3, "min_length": 6}, {"max_length": 2}):
            search = {**settings, "samples": samples}
            for line, found in zip(LINES, translator.translate(LINES, search=search), strict=True):
                most = len(translator.source.encode(line)) + search.get("extra_length", 20)
                for candidate in found.hypotheses:
                    length = len(candidate.ids) + candidate.ended
                    assert search.get("min_length", 0) <= length <= min(most, search.get("max_length", most))
                    assert candidate.ended or length == min(most, search.get("max_length", most))


def test_a_thousand_lines_keep_what_is_asked_of_them_or_are_refused_with_the_reason(translator: Translator) -> None:
    """From words to words, through subwords of all kinds: none may slip through, whatever the search."""
    draw = random.Random(7)
    words = [word.strip(".,") for word in " ".join(GERMAN).split()]

    def phrases(most: int) -> tuple[str, ...]:
        words_of = [*words, "7", "\u96ea", "na\u00efve"]
        return tuple(" ".join(draw.choices(words_of, k=draw.randint(1, 2))) for _ in range(draw.randint(0, most)))

    def check(line: str, rules: Constraints, text: str) -> None:
        required = [*rules.include, *(theirs for ours, theirs in rules.glossary if occurs(ours, line))]
        required += PLACEHOLDER.findall(line) if rules.placeholders else []
        assert [wanted for wanted in required if not occurs(wanted, text)] == [], (line, rules, text)
        assert [banned for banned in rules.forbid if occurs(banned, text)] == [], (line, rules, text)
        assert text.startswith(rules.prefix)

    met, reasons = 0, []
    searches: list[dict[str, Any]] = [{"max_length": 14}, {"max_length": 7}, {"samples": 1, "max_length": 20}]
    for case in range(25):
        rules = Constraints(
            include=phrases(2),
            forbid=phrases(3),
            prefix=draw.choice(["", "", "Ein", "Zwei M\u00e4nner"]),
            glossary=((draw.choice(["man", "a", "girl"]), draw.choice(words)),),
            placeholders=draw.random() < 0.5,
        )
        tail = draw.choice(["", "{name}", "%s", "<x1>", "https://example.org/a"])
        lines = [f"{line} {tail}" for line in draw.choices(ENGLISH, k=40)]
        search = {**searches[case % 3], "seed": case}
        while lines:
            try:
                found = translator.translate(lines, beam=3, search=search, constraints=rules)
            except RegardError as error:
                reasons.append(str(error))
                number = re.match(r"line (\d+)", str(error))
                lines.pop(int(number[1]) - 1 if number else len(lines))  # whatever names no line ends this here
                continue
            for line, translation in zip(lines, found, strict=True):
                check(line, rules, translation.text)
                assert len(translation.hypotheses[0].ids) <= search["max_length"]
                met += 1
            break
    assert met + len(reasons) == 1000
    assert met > 500
    said = "drop one of the two|change one of the two|forbidden|no translation keeps|bytes that are no text"
    assert [reason for reason in reasons if not re.search(said, reason)] == []
    assert sum("bytes that are no text" in reason for reason in reasons) < 10
