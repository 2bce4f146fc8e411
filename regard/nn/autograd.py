"""Autograd functions of our own, called with a type that PyTorch's own declaration lacks."""

from __future__ import annotations

from typing import Any

from torch.autograd import Function


def applied(function: type[Function], *arguments: object) -> Any:
    """What a function makes of its arguments; gradients flow through it."""
    return function.apply(*arguments)
