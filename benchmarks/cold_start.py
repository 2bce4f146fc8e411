"""How long one line takes from nothing: Regard's command, CTranslate2 and Hugging Face by the shortest script each.

    ./run bench cold_start --bundle runs/base

Timed is the whole process, from its start to its end: Python, imports, the model, one sentence at beam 4. Files are in
the system's cache, as on a machine that did this before; systems take turns. Regard reads the bundle, as it is and in
int8 (`regard quantize`); CTranslate2 an int8 and a float32 export; Hugging Face its own directory in float32. With
`--python`, Regard and CTranslate2 run in another environment, such as one with the wheel and without PyTorch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from record import RESULTS, circumstances, write
from workers import BenchmarkError, Machine, at_least, exit_code, threads_option

from regard.bundle import load
from regard.exchange.ctranslate2 import write_ctranslate2
from regard.tuning.quantize import quantize

LINE = "A man in an orange hat is looking at something."
CTRANSLATE2 = """
import sys
import ctranslate2, sentencepiece
place, threads = sys.argv[1], int(sys.argv[2])
source, target = (sentencepiece.SentencePieceProcessor(f"{place}/{side}.spm") for side in ("source", "target"))
translator = ctranslate2.Translator(place, compute_type="default", intra_threads=threads)
tokens = source.encode(sys.stdin.readline().strip(), out_type=str)
print(target.decode(translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0]))
"""
HUGGINGFACE = """
import sys
import sentencepiece, torch
from transformers import AutoModelForSeq2SeqLM
torch.set_num_threads(int(sys.argv[2]))
pieces = sentencepiece.SentencePieceProcessor(f"{sys.argv[1]}/source.spm")
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
ids = torch.tensor([[*pieces.encode(sys.stdin.readline().strip()), 3]])
with torch.inference_mode():
    print(pieces.decode(model.generate(ids, num_beams=4, early_stopping=True, max_new_tokens=60)[0].tolist()))
"""

LAUNCH = """
import os, sys, time
began = time.perf_counter()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - began, usage.ru_maxrss, flush=True)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process in between: a child's memory is never counted less than that of the process that began it."""


def commands(path: Path, folder: Path, threads: int, python: str) -> dict[str, list[str]]:
    """The command of each system; what it reads is written first."""
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    from decoder import _marian_or_pegasus

    bundle = load(path)
    places = {name: folder / name for name in ("int8", "float32", "huggingface")}
    for name in ("int8", "float32"):
        places[name].mkdir()
        write_ctranslate2(bundle, places[name], name)
    _marian_or_pegasus(str(path)).save_pretrained(places["huggingface"])
    (places["huggingface"] / "source.spm").write_bytes(bundle.source.to_bytes())
    quantize(path, folder / "smaller")

    def script(code: str, name: str, python: str = python) -> list[str]:
        return [python, "-c", code, str(places[name]), str(threads)]

    return {
        "regard": [python, "-m", "regard", "translate", str(path)],
        "regard, int8 bundle": [python, "-m", "regard", "translate", str(folder / "smaller")],
        "ctranslate2 int8": script(CTRANSLATE2, "int8"),
        "ctranslate2 float32": script(CTRANSLATE2, "float32"),
        "huggingface float32": script(HUGGINGFACE, "huggingface", sys.executable),
        "python alone": [python, "-c", "pass"],
    }


def timed(machine: Machine, command: list[str]) -> tuple[float, int, str]:
    """Seconds, the most bytes of memory, and what was written."""
    words = [sys.executable, "-S", "-c", LAUNCH, *command]
    done = subprocess.run(words, env=machine.environment, input=LINE + "\n", capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-800:]}")
    *said, figures = done.stdout.strip().split("\n")
    seconds, kilobytes = figures.split()
    return float(seconds), int(kilobytes) * 1024, "".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="that has Regard's wheel and CTranslate2")
    parser.add_argument("--rounds", type=at_least(1), default=7)
    parser.add_argument("--results", type=Path, default=RESULTS / "cold_start.json")
    threads_option(parser)
    arguments = parser.parse_args()
    machine = Machine(arguments.threads)
    systems: dict[str, Any] = {}
    result = {**circumstances(), "threads": arguments.threads, "rounds": arguments.rounds, "systems": systems}
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, list[tuple[float, int, str]]] = {}
        all_of_them = commands(arguments.bundle, Path(folder), arguments.threads, arguments.python)
        for command in all_of_them.values():
            timed(machine, command)  # what it reads is in the system's cache
        for _ in range(arguments.rounds):
            for name, command in all_of_them.items():
                runs.setdefault(name, []).append(timed(machine, command))
                seconds = [each[0] for each in runs[name]]
                systems[name] = {
                    "seconds": {"median": median(seconds), "least": min(seconds), "most": max(seconds)},
                    "peak_bytes": max(each[1] for each in runs[name]),
                    "said": runs[name][-1][2],
                }
            write(arguments.results, result)
    for name, one in systems.items():
        print(f"{name:22s} {one['seconds']['median']:6.3f} s {one['peak_bytes'] / 2**20:6,.0f} MB  {one['said']}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
