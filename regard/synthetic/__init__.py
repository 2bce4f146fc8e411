"""Pairs that a model makes to train another one: back-translation and distillation; see docs/synthetic.md."""
