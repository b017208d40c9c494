"""Layouts: how a pair of texts lies on a canvas."""
