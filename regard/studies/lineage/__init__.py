"""The lineage compared: families trained alike, and what their figures say."""

from __future__ import annotations

from .extrapolation import plan_schemes
from .report import compose
from .runs import FAMILIES, QUICK, Run, builtin, collect, plan_runs, train
from .table import Result, gather, markdown, results

__all__ = [
    "FAMILIES",
    "QUICK",
    "Result",
    "Run",
    "builtin",
    "collect",
    "compose",
    "gather",
    "markdown",
    "plan_runs",
    "plan_schemes",
    "results",
    "train",
]
