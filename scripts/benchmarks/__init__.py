"""Speed and memory of alternatives, measured in turns within one run: one module per suite."""
