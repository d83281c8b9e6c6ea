"""The folder of a run: its files, its summary, and its description for trackers."""
