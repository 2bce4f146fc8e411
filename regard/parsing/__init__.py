"""Constituency parsing as translation: treebanks, the rules of a tree, scores and commands."""
