"""Constituency parsing, as translation and by a chart: treebanks, the rules of a tree, scores and commands."""
