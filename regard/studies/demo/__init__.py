"""The demonstration: a corpus made on the spot, a translator trained on it, and what it is measured on."""
