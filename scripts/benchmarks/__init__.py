"""Speed and memory, measured side by side in one run: one module per suite."""
