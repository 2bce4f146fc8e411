"""Marian's own trainer (C++) by the wheel `pymarian`, on text: its loop, its batches sorted by length, its Adam.

A job holds, beside what `loop.py` says, `text`: a folder with train.source and train.target, a pair a line, tokens with
spaces between, and vocabulary.txt, the tokens but for the special ones. It trains in float32, for it knows
nothing else on a CPU, with a worker for each thread. Speed is that of its log: words (targets' tokens,
ends counted) and seconds of the updates after the warm-up.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

UPDATE = re.compile(r"Up\. ([\d,]+) : Sen\. [\d,]+ : Cost ([\d.]+) : Time ([\d.]+)s : ([\d.]+) words/s")


def found_in(log: str, warmup: int) -> dict[str, Any]:
    """Words and seconds of the log's lines whose updates are past the warm-up; raises ValueError if there is none."""
    lines = [(int(update.replace(",", "")), *map(float, rest)) for update, *rest in UPDATE.findall(log)]
    past = [line for line in lines if line[0] >= warmup + 2]
    if not past:
        raise ValueError(f"Marian's log tells of {len(lines)} updates, and of none after the warm-up")
    return {
        "tokens": round(sum(seconds * speed for _, _, seconds, speed in past)),
        "seconds": sum(seconds for _, _, seconds, _ in past),
        "losses": [cost for _, cost, _, _ in lines],
    }


def main() -> None:
    job = json.load(sys.stdin)
    shape, text, threads = job["shape"], Path(job["text"]), int(os.environ["OMP_NUM_THREADS"])
    with tempfile.TemporaryDirectory() as folder:
        tokens = ["</s>", "<unk>", *(text / "vocabulary.txt").read_text(encoding="utf-8").split("\n")]
        tokens += [f"<unused{i}>" for i in range(shape["vocabulary"] - len(tokens))]
        vocabulary = Path(folder) / "vocabulary.yml"
        lines = (
            f"{json.dumps(token, ensure_ascii=False)}: {i}"
            for i, token in enumerate(dict.fromkeys(filter(None, tokens)))
        )
        vocabulary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        updates = f"{job['warmup'] + job['steps'] + 2}u"
        options = {
            "type": "transformer",
            "model": f"{folder}/model.npz",
            "train-sets": f"{text / 'train.source'} {text / 'train.target'}",
            "vocabs": f"{vocabulary} {vocabulary}",
            **{"dim-emb": shape["width"], "enc-depth": shape["layers"], "dec-depth": shape["layers"]},
            **{"transformer-heads": shape["heads"], "transformer-dim-ffn": shape["feedforward"]},
            **{"transformer-ffn-activation": "relu", "transformer-dropout": shape["dropout"]},
            **{"label-smoothing": shape["smoothing"], "cost-type": "ce-mean-words", "clip-norm": 0},
            **{"optimizer": "adam", "optimizer-params": "0.9 0.98 1e-09", "learn-rate": job["rate"]},
            **{"mini-batch": 1000, "mini-batch-words": job["batch_tokens"], "maxi-batch": 100},
            **{"cpu-threads": threads, "workspace": 512, "after": updates, "disp-freq": "2u", "save-freq": "1000000u"},
            **{"log": f"{folder}/log", "seed": job["seed"], "max-length": 1000},
        }
        words = [word for key, value in options.items() for word in (f"--{key}", *str(value).split())]
        # In a process of its own, for it ends the process when it is done.
        code = "import _pymarian, sys; _pymarian.main(sys.argv[1:])"
        command = [sys.executable, "-c", code, "train", *words, "--tied-embeddings-all", "--quiet"]
        if failed := subprocess.run(command, stdout=sys.stderr).returncode:
            sys.exit(failed)
        log = (Path(folder) / "log").read_text(encoding="utf-8")
    found = {
        **found_in(log, job["warmup"]),
        "parameters": 0,
        "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "step_bytes": [],
        "threads": threads,
        "versions": {"pymarian": "1.12.42"},
    }
    print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
