"""Learning from corrections: adapters of a bundle, from many pairs or from one sentence; see docs/adapting.md."""
