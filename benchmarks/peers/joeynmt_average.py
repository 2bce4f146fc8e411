"""The mean of JoeyNMT's checkpoints, as one more: `joeynmt_average.py OUT CHECKPOINT…`, in its own environment."""

from __future__ import annotations

import sys

import torch

out, *names = sys.argv[1:]
checkpoints = [torch.load(name, map_location="cpu") for name in names]
weights = [checkpoint["model_state"] for checkpoint in checkpoints]
mean = {name: torch.stack([each[name].double() for each in weights]).mean(0) for name in weights[0]}
checkpoints[-1]["model_state"] = {name: value.to(weights[-1][name].dtype) for name, value in mean.items()}
torch.save(checkpoints[-1], out)
