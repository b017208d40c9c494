"""Analyses: figures and tables of the papers for any model, as findings."""
