"""Bulk translation over many machines, by Ray: `regard.cluster.translate_file`."""

from .translate import translate_file

__all__ = ["translate_file"]
