"""Before a run begins: its recipe, and what it will need of memory, disk and time."""
