"""Embeds the images of a folder or a list: `python embed.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.embed_command import main

if __name__ == "__main__":
    sys.exit(main())
