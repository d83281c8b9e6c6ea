"""A dataset is read before torch is loaded, so that what is wrong with it is said at once."""

from __future__ import annotations

from dml.config.constructor import Constructor
from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.core.option_values import has_seen_classes
from dml.data.image_index import ImageIndex

# Readers that list files, and need no torch.
READERS = tuple(
    f"dml.data.readers.{name}.read_{name}"
    for name in ("cub", "cars", "sop", "inshop", "inat", "emoji", "shapes", "folder")
)


def read_early(config: Config) -> ImageIndex | None:
    """Returns the dataset as its reader gives it, or None if it is to be read later.

    Of several processes that train a model together one reads it later, and reports for all.

    Raises:
        UserError: files are missing, or names or counts are wrong.
    """
    data = config.data
    if data.reader["_target_"] not in READERS or read_launch().size > 1:
        return None
    reader = Constructor(data.reader, "data.reader", ("root", "shared_classes"))
    if reader.problems:
        return None  # reported later, together with those of other options
    supplied = {"root": data.root, "shared_classes": has_seen_classes(config.protocol.splits)}
    index: ImageIndex = reader(**reader.select_missing(supplied))
    return index
