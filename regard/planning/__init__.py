"""What a run will need is reckoned before it begins: parameters, tokens, memory, disk and time."""
