"""Report: everything that is known of some runs on one page, which needs nothing but itself."""
