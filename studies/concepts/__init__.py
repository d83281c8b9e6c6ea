"""Pictures of docs/concepts, each drawn from the code that it explains."""
