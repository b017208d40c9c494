"""Metrics with signatures, diversity, copying, confidence intervals, significance and tables."""
