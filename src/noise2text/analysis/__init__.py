"""Looking into models: the papers' figures and tables for any model, as findings."""
