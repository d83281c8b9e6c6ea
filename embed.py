"""Embeds the images of a folder or a list: `python embed.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.network_commands import embed

if __name__ == "__main__":
    sys.exit(embed())
