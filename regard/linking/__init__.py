"""Word links of parallel text, learnt from that text alone; and the command that reads them off a bundle."""

from __future__ import annotations

from .link import link_lines

__all__ = ["link_lines"]
