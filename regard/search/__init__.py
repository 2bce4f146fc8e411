"""Search: (step, state) -> sequences. The searches by name are in `regard.search.table`."""
