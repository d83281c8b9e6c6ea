"""The dataset of emoji by nine designers: its packages, drawings and pictures."""
