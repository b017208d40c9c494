"""The datasets of the papers, from their published raw files to pairs."""
