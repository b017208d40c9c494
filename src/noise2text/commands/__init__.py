"""Runs: folders in which a model grows from pairs, step by step, and can be stopped and resumed."""
