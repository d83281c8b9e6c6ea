"""Random wrong commands: their table, how they are changed, run and judged."""
