"""JoeyNMT as its users run it: `python -m joeynmt train` on text, in its own loop, batches and optimiser.

A job holds, beside what `loop.py` says, `text`: a folder with train.source and train.target, a pair a line, tokens with
spaces between; vocabulary.txt, the tokens but for the special ones; and `sizes`, for each batch that JoeyNMT is to cut
from the text in this order its pairs and target tokens. Seconds are those of its own log, one line for each update; its
log must also count as many updates, pairs and tokens.

On a CPU it trains in float32, for it switches its 16-bit setting off there.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from loop import read_job

UPDATE = re.compile(r"Batch Loss: +(\S+), .*Tokens per Sec: +(\d+)")
EPOCH = re.compile(r"num\. of seqs: (\d+), num\. of tokens: (\d+)")
PARAMETERS = re.compile(r"Total params: (\d+)")


def configuration(job: dict[str, Any], folder: str, name: str = "model") -> dict[str, Any]:
    """What a user would write; one epoch is the whole text, and nothing is validated or clipped."""
    shape, text = job["shape"], Path(job["text"])
    language = {"level": "word", "voc_file": str(text / "vocabulary.txt")}
    side = {
        "type": "transformer",
        "num_layers": shape["layers"],
        "num_heads": shape["heads"],
        "hidden_size": shape["width"],
        "ff_size": shape["feedforward"],
        "dropout": shape["dropout"],
        "layer_norm": "post",
        "embeddings": {"embedding_dim": shape["width"], "scale": True, "dropout": shape["dropout"]},
    }
    return {
        "name": "benchmark",
        "model_dir": f"{folder}/{name}",
        "use_cuda": False,
        "random_seed": job["seed"],
        "data": {
            "train": str(text / "train"),
            "dev": str(text / "train"),  # it asks for one
            "src": {"lang": "source", **language},
            "trg": {"lang": "target", **language},
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": job["rate"],
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 1,
            "learning_rate_min": 0.0,
            "label_smoothing": shape["smoothing"],
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": job["batch_tokens"],
            "shuffle": False,  # the text is in random order
            "epochs": 1,
            "logging_freq": 1,
            "validation_freq": len(job["sizes"]) + 1,
        },
        "testing": {},
    }


def found_in(log: str, job: dict[str, Any]) -> dict[str, Any]:
    """Seconds, losses and parameters by JoeyNMT's log; raises ValueError if it counts other than the batches hold."""
    updates = [(float(loss), int(speed)) for loss, speed in UPDATE.findall(log)]
    epochs = [(int(pairs), int(tokens)) for pairs, tokens in EPOCH.findall(log)]
    pairs, tokens = zip(*job["sizes"], strict=True)
    if len(updates) != len(tokens) or epochs != [(sum(pairs), sum(tokens))]:
        raise ValueError(
            f"JoeyNMT's log has {len(updates)} updates and {epochs} pairs and tokens; "
            f"the batches are {len(tokens)}, with {sum(pairs)} pairs and {sum(tokens)} tokens"
        )
    timed = tokens[job["warmup"] :]
    speeds = [speed for _, speed in updates[job["warmup"] :]]
    return {
        "seconds": sum(count / speed for count, speed in zip(timed, speeds, strict=True)),
        "tokens": sum(timed),
        "losses": [loss for loss, _ in updates],
        "parameters": int(PARAMETERS.findall(log)[0]),
    }


def main() -> None:
    job = read_job()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps(configuration(job, folder)), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "joeynmt", "train", str(config), "--skip-test"]
        if code := subprocess.run(command, stdout=sys.stderr).returncode:
            sys.exit(code)
        log = (Path(folder) / "model" / "train.log").read_text(encoding="utf-8")
    found = {
        **found_in(log, job),
        "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "step_bytes": [],
        "threads": torch.get_num_threads(),  # it takes them from the environment, as this process does
        "versions": {name: metadata.version(name) for name in ("torch", "joeynmt")},
    }
    print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
