"""Generation: decoders, search, and selection among candidates."""
