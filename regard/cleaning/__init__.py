"""Parallel text made clean: pairs of lines that are no translations of each other are found, named and left out."""
