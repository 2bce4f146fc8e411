"""Lectures, lineage and the demonstration: built on everything else, imported only by their commands."""
