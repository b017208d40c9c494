"""Report: a self-contained HTML page about runs."""
