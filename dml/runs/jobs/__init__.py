"""The models of a run: trained one after another or in parallel."""
