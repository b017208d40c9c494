"""Layouts: how a pair of texts is arranged on the canvas that diffusion fills."""
