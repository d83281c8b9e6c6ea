"""The reader of a user's images under its short name, which configs and programs may rely on."""

from dml.data.readers.folder import read_folder

__all__ = ["read_folder"]
