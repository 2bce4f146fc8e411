"""Word links of parallel text, learnt from that text alone."""

from __future__ import annotations

from .link import link_lines

__all__ = ["link_lines"]
