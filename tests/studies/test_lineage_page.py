"""The report of the lineage as a reader has it: one file, both languages, pictures and numbers."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
import torch

from regard.errors import DataError
from regard.nn.attention import SCORES, Window
from regard.nn.attention.core import attend, matrix
from regard.studies.lineage.costs import LAYERS, TABLE, measure_layers, restricted
from regard.studies.lineage.report_page import page

# -- what layers cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("places", "radius"), [(9, 2), (5, 8), (1, 3)])
def test_restricted_attention_is_attention_in_a_window(places: int, radius: int) -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, places, 6, dtype=torch.float64)
    score = SCORES["scaled_dot"](6)
    mask = matrix(Window(radius), 1, places, places, torch.device("cpu")).view(places, places)
    expected, _ = attend(score.queries(queries), score.keys(keys), values, score.compare, mask)
    torch.testing.assert_close(restricted(queries, keys, values, radius), expected)


def test_every_layer_of_the_table_is_measured_and_its_growth_found() -> None:
    assert list(LAYERS) == [row["layer"] for row in TABLE]
    ticks = count(1)
    found = measure_layers((4, 8, 16), (8, 16, 32), clock=lambda: next(ticks) ** 2)
    assert [len(seconds) for seconds in found["by_length"]["seconds"].values()] == [3] * len(LAYERS)
    seconds = found["by_length"]["seconds"]["convolution"]
    growth = torch.tensor(seconds).log2().diff().sum().item() / 2
    assert found["growth"]["convolution"]["n"] == pytest.approx(growth)


# -- the page ----------------------------------------------------------------------------------------------------------


def report() -> dict[str, Any]:
    """Made up: two families, two seeds."""

    def over(*values: float) -> dict[str, Any]:
        ends = [min(values) - 1, max(values) + 1]
        mean = sum(values) / len(values)
        return {"values": values, "mean": mean, "lowest": min(values), "highest": max(values), "interval": ends}

    family = {
        "seeds": [1, 2], "chrf": over(50, 52), "perplexity": over(7, 8) | {"interval": None}, "parameters": 1234567,
        "trained": 900.0, "updates": 4321.0, "epochs": 12.0, "tokens_per_second": 9876.5,
    }  # fmt: skip
    names = ["Ein", "<Mann>", "</s>"]
    picture = {"rows": ["A", "man", "</s>"], "columns": names, "weights": [[0.8, 0.1, 0.1]] * 3}
    groups = [{"from": 3, "to": 7, "mean": 5.5, "lines": 20}, {"from": 8, "to": 20, "mean": 11.0, "lines": 19}]
    sizes, seconds = [64, 128], {layer: [1e-4, 4e-4] for layer in LAYERS}
    return {
        "table": {
            "set": "test", "lines": 39, "minutes": 15.0, "languages": ["de", "en"], "tokens": 8000,
            "search": {"beam": 5, "alpha": 1.0, "penalty": "gnmt"}, "signatures": {"bleu": "nrefs:1"},
            "precision": ["bfloat16"], "threads": [2],
            "families": [
                {"family": "seq2seq", "bleu": over(24.0, 26.0), **family},
                {"family": "transformer", "bleu": over(38.0, 38.5), **family},
            ],
            "by_length": {"groups": groups, "bleu": {"seq2seq": [30.0, 20.0], "transformer": [39.0, 38.0]}},
            "by_halves": {
                "up_to": 7, "lines": [20, 19],
                "families": {
                    "seq2seq": {"shorter": 30.0, "longer": 20.0, "interval": [-13.0, -7.0]},
                    "transformer": {"shorter": 39.0, "longer": 38.0, "interval": None},
                },
            },
            "told_apart": [
                {"pair": ["seq2seq", "transformer"], "differences": [14.0, 12.5], "p": [0.001, 0.2], "apart": False}
            ],
        },
        "pictures": [{"source": "Ein <Mann>", "reference": "A man & more", "families": {"transformer": picture}}],
        "alignment": [
            {"family": "transformer", "seed": 1, "value": 40.5, "interval": [35.0, 45.0], "signature": "nlines:50",
             "pairs": 50}
        ],
        "costs": {
            "table": TABLE, "kernel": 3, "radius": 8, "threads": 1,
            "by_length": {"d": 256, "n": [32, *sizes], "seconds": {k: [5e-5, *v] for k, v in seconds.items()}},
            "by_width": {"n": 512, "d": [32, *sizes], "seconds": {k: [5e-5, *v] for k, v in seconds.items()}},
            "growth": {layer: {"n": 2.0, "d": 1.0} for layer in LAYERS},
        },
        "extrapolation": {
            "longest": 11, "minutes": 3.0,
            "groups": [{"from": 3, "to": 11, "lines": 30}, {"from": 12, "to": 20, "lines": 30}],
            "schemes": {name: {"perplexity": [8.0, 20.0], "bleu": [30.0, 9.0]} for name in ("learned", "alibi")},
        },
    }  # fmt: skip


def test_the_page_needs_nothing_else_and_says_everything_twice() -> None:
    text = page(report())
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)|@import|url\(""", text)
    assert text.count('lang="en">') == text.count('lang="zh">') > 40
    assert "Not told apart by BLEU: seq2seq / transformer." in text
    said = ("25.00 (24.00–26.00)", "-13.00 – -7.00", "1,234,567", "Ein &lt;Mann&gt;", "A man &amp; more")
    assert [words for words in said if words not in text] == []
    assert "<Mann>" not in text
    assert text.count("<img ") == 5 + 1  # charts, and where a family looks
    assert 'show("zh")' in page(report(), language="zh")


def test_what_was_not_made_is_left_out() -> None:
    made = report()
    del made["alignment"], made["extrapolation"]
    made["pictures"][0]["families"] = {}
    text = page(made)
    assert "Alignment error rate" not in text
    assert "Longer than anything" not in text
    assert "Where they look" not in text


HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def test_text_of_others_is_shown_as_text() -> None:
    """A report's languages, families and precision came unescaped into the page, where they ran."""

    def spoilt(value: Any) -> Any:
        """Every text with markup in it, but for the names of the layers, which are ours."""
        if isinstance(value, str):
            return value + HOSTILE
        if isinstance(value, list | tuple):
            return [spoilt(each) for each in value]
        return {key: spoilt(each) for key, each in value.items()} if isinstance(value, dict) else value

    made = report()
    costs = made.pop("costs")
    made = spoilt(made) | {"costs": costs}
    made["extrapolation"]["schemes"] = {f"learned{HOSTILE}": made["extrapolation"]["schemes"]["learned"]}
    made["table"]["by_length"]["bleu"] = {f"{k}{HOSTILE}": v for k, v in made["table"]["by_length"]["bleu"].items()}
    made["table"]["signatures"] = {f"bleu{HOSTILE}": "nrefs:1"}
    made["pictures"][0]["families"] = {f"transformer{HOSTILE}": made["pictures"][0]["families"]["transformer"]}
    text = page(made)
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#x27;") > 20
    assert text.count("<img ") == 5 + 1
    for shown in ("de&lt;img", "bfloat16&lt;img", "seq2seq&lt;img"):
        assert shown in text


def test_a_language_that_the_page_does_not_speak_is_refused() -> None:
    with pytest.raises(DataError, match="en or zh"):
        page(report(), language="</script>")
