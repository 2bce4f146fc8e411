"""Words that a translation must have or must not have, in text; a search keeps them as rules of its hypotheses."""
