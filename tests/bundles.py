"""A small bundle with random weights, for tests that need one and do not care what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard import bundle as bundles
from regard import recipe as recipes
from regard.models import FAMILIES
from regard.tasks.decode import decode
from regard.tasks.engine import backend_of
from regard.text import PAD, Tokenizer

ENGLISH = """A man in an orange hat is starring at something .
Two young, White males are outside near many bushes.
Several men in hard hats are operating a giant pulley system.
A little girl climbing into a wooden playhouse.
A man in a blue shirt is standing on a ladder cleaning a window.
Two men are at the stove preparing food.
A man in green holds a guitar while the other man observes his shirt.
A man is smiling at a stuffed lion
A trendy girl talking on her cellphone while gliding slowly down the street.
A woman with a large purse is walking by a gate.
Boys dancing on poles in the middle of the night.
A ballet class of five girls jumping in sequence.""".splitlines()

GERMAN = """Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.
Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.
Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem.
Ein kleines Mädchen klettert in ein Spielhaus aus Holz.
Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.
Zwei Männer stehen am Herd und bereiten Essen zu.
Ein Mann in grün hält eine Gitarre, während der andere Mann sein Hemd ansieht.
Ein Mann lächelt einen ausgestopften Löwen an.
Ein schickes Mädchen spricht mit dem Handy während sie langsam die Straße entlangschwebt.
Eine Frau mit einer großen Geldbörse geht an einem Tor vorbei.
Jungen tanzen mitten in der Nacht auf Pfosten.
Eine Ballettklasse mit fünf Mädchen, die nacheinander springen.""".splitlines()


UNCOMPILED = {"width": 32, "heads": 2, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2, "norm_kind": "rms"}
"""A model that the compiled decoder does not know."""


def small_bundle(
    path: Path, *, separate: bool = False, tags: tuple[str, ...] = (), seed: int = 1, **tables: Any
) -> bundles.Bundle:
    """Save a bundle of a random Transformer with a few hundred tokens at `path`, and load it."""
    symbols = [f"<2{code}>" for code in tags]
    both = Tokenizer.train([*ENGLISH, *GERMAN], size=400, symbols=symbols)
    source = Tokenizer.train(ENGLISH, size=330, symbols=symbols) if separate else both
    target = Tokenizer.train(GERMAN, size=350) if separate else both
    recipe = recipes.validate(
        {
            "name": "small",
            "data": {
                "source": "train.en",
                "target": "train.de",
                "source_language": "en",
                "target_language": "" if tags else "de",
                "target_languages": list(tags),
            },
            "text": {"size": 400, "joint": not separate},
            "model": {
                "width": 32,
                "heads": 2,
                "feedforward": 64,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "share": "none" if separate else "all",
            },
            "search": {"beam": 2, "extra_length": 5},
            **tables,
        }
    )
    tag = f"{symbols[0]} " if symbols else ""
    torch.manual_seed(seed)
    model = FAMILIES[recipe.model.family].build(recipe.model, len(source), len(target), PAD)
    model.eval()
    ids = [source.encode(line) for line in (f"{tag}{line}" for line in ENGLISH[:3])]
    golden = [
        bundles.Golden(
            source=f"{tag}{line}",
            source_ids=tuple(read),
            target_ids=tuple(found[0].ids),
            output=target.decode(found[0].ids),
        )
        for line, read, found in zip(ENGLISH, ids, decode(backend_of(model), ids, recipe.search), strict=False)
    ]
    bundles.save(
        path,
        recipe=recipe,
        weights=dict(model.named_parameters()),
        source=source,
        target=target,
        provenance=bundles.Provenance(created="2026-11-21T10:00:00Z", versions={"sentencepiece": "0.2.3"}),
        golden=golden,
    )
    return bundles.load(path)
