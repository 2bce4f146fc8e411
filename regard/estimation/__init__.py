"""How good translations are, estimated without a reference."""

from __future__ import annotations

from .estimate import Agreement, Estimator, agreement, estimate, learn_estimator

__all__ = ["Agreement", "Estimator", "agreement", "estimate", "learn_estimator"]
