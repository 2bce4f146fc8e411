"""The lineage compared: families trained alike, and what their figures say."""

from __future__ import annotations

from .runs import FAMILIES, QUICK, Run, builtin, collect, plan_runs, train
from .table import Result, gather, markdown, results

__all__ = [
    "FAMILIES",
    "QUICK",
    "Result",
    "Run",
    "builtin",
    "collect",
    "gather",
    "markdown",
    "plan_runs",
    "results",
    "train",
]
