"""What `regard adapt` learns of another domain and loses at home, and how long it and a single correction take.

    python benchmarks/adapt.py --bundle runs/multi30k/bundle --train $REGARD_DATA/softdocs_en-de/train.gnome \\
        --test $REGARD_DATA/softdocs_en-de/valid --home $REGARD_DATA/multi30k/test_2016_flickr \\
        --replay $REGARD_DATA/multi30k/train

A set is named by its path without the languages: NAME.en.gz and NAME.de.gz, or NAME.en and NAME.de. So many pairs of
--train (--pairs, spread over the file) are learnt with replay of --replay; BLEU is of the bundle's default search, on
--test and --home, before and after. Without --skip-learning this takes the minutes of learning once. Then corrections:
of each of some home lines (--corrections) the first translation is replaced by its reference, learnt, checked that it
holds, and undone; the time is that of a correction after the first, which loads PyTorch, and is given too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from record import RESULTS, circumstances, write
from workers import BenchmarkError, exit_code

import regard
from regard.adaptation.keep import Corrections
from regard.errors import ModelError
from regard.metrics import bleu
from regard.text import read_lines

Pairs = list[tuple[str, str]]


def pairs_of(name: str, languages: tuple[str, str]) -> Pairs:
    """The pairs of a set."""
    sides = []
    for language in languages:
        files = [Path(f"{name}.{language}{end}") for end in (".gz", "")]
        found = next((file for file in files if file.exists()), None)
        if found is None:
            raise BenchmarkError(f"{files[0]}: there is no such file, nor one without .gz.")
        sides.append(read_lines(found))
    spaced = ([" ".join(line.split()) for line in side] for side in sides)  # tokens spell no space twice
    return list(zip(*spaced, strict=True))


def scored(translator: regard.Translator, pairs: Pairs) -> dict[str, Any]:
    """BLEU of the default search."""
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    texts = [each.text for each in translator.translate(sources)]
    found = bleu(texts, references, language=translator.languages.target, resamples=0)
    return {"bleu": found.value, "signature": found.signature, "lines": len(pairs)}


def learnt(arguments: argparse.Namespace, languages: tuple[str, str], folder: Path) -> dict[str, Any]:
    """The domain and home before and after 2,000 pairs, the seconds that learning took, and the adapter's bytes."""
    train = pairs_of(arguments.train, languages)
    chosen = [train[i * len(train) // arguments.pairs] for i in range(min(arguments.pairs, len(train)))]
    sets = {name: pairs_of(getattr(arguments, name), languages) for name in ("test", "home")}
    before = regard.load(arguments.bundle)
    found: dict[str, Any] = {name: {"before": scored(before, pairs)} for name, pairs in sets.items()}
    file, start = folder / "learnt.safetensors", time.perf_counter()
    settings = {key: value for key, _, value in (each.partition("=") for each in arguments.set)}
    adapter = regard.adapt(
        arguments.bundle,
        chosen,
        file,
        replay=pairs_of(arguments.replay, languages) if arguments.replay else (),
        **settings,
    )
    seconds = time.perf_counter() - start
    after = regard.load(arguments.bundle, adapter=file)
    for name, pairs in sets.items():
        found[name]["after"] = scored(after, pairs)
        found[name]["gain"] = found[name]["after"]["bleu"] - found[name]["before"]["bleu"]
        print(f"{name}: {found[name]['before']['bleu']:.2f}, now {found[name]['after']['bleu']:.2f}", flush=True)
    about = {"seconds": seconds, "bytes": file.stat().st_size, "pairs": len(chosen), "learning": adapter.card.about}
    return {**found, **about}


def corrected(arguments: argparse.Namespace, languages: tuple[str, str], folder: Path) -> dict[str, Any]:
    """Seconds of a correction, whether it holds, whether other lines stay, and whether undoing is exact."""
    translator = regard.load(arguments.bundle)
    kept = Corrections(translator, folder / "corrections")
    pairs = pairs_of(arguments.home, languages)
    probe = [source for source, _ in pairs[-32:]]
    before = [each.to_dict() for each in translator.translate(probe)]
    recent = [source for source, _ in pairs[-64:-32]]  # what a server would have translated last
    for source, found in zip(recent, translator.translate(recent), strict=True):
        kept.note(source, found)
    took, refused, held, undone, others = [], 0, 0, 0, 0
    for source, reference in pairs[: arguments.corrections]:
        start = time.perf_counter()
        try:
            made = kept.learn(source, reference)
        except ModelError:
            refused += 1
            continue
        took.append(time.perf_counter() - start)
        if made is None:
            took.pop()
            continue
        held += kept.translator.translate([source])[0].text == reference
        now = [each.text for each in kept.translator.translate(probe)]
        others += sum(text != was["text"] for text, was in zip(now, before, strict=True))
        kept.undo(made.id)
        undone += [each.to_dict() for each in kept.translator.translate(probe)] == before
    if len(took) < 2:
        raise BenchmarkError(f"{len(took)} corrections were learnt and {refused} refused; give more --corrections.")
    print(f"corrections: {len(took)} learnt, {held} held, median {median(took[1:]):.2f} s", flush=True)
    return {
        "learnt": len(took),
        "refused": refused,
        "held": held,
        "undone_to_the_bit": undone,
        "other_lines_changed": others / (len(probe) * max(1, len(took))),
        "first_seconds": took[0],
        "median_seconds": median(took[1:]),
        "most_seconds": max(took[1:]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--train", help="the domain's pairs to learn")
    parser.add_argument("--test", help="the domain's pairs to score")
    parser.add_argument("--home", required=True, help="pairs of what the bundle was trained on, to score")
    parser.add_argument("--replay", help="pairs of what the bundle was trained on, to be kept")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--corrections", type=int, default=21)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of regard.adapt")
    parser.add_argument("--skip-learning", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS / "adapt.json")
    arguments = parser.parse_args()
    translator = regard.load(arguments.bundle)
    assert translator.bundle is not None
    languages = translator.languages.source, translator.languages.target
    folder = Path(tempfile.mkdtemp())
    try:
        found = {
            **circumstances(),
            "bundle": translator.bundle.name,
            "parameters": translator.bundle.parameters,
            "threads": os.environ.get("OMP_NUM_THREADS", "all"),
            "corrections": corrected(arguments, languages, folder),
            **({} if arguments.skip_learning else {"domain": learnt(arguments, languages, folder)}),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write(arguments.results, found)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
