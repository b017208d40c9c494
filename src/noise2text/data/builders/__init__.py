"""Builders of the papers' datasets from their published raw files."""
