"""The folder of a run: its files, summary, and description for trackers."""
