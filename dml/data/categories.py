"""Categories of classes, such as the super-class of a product: of batches and of scores."""

from __future__ import annotations

import numpy as np

from dml.core.errors import UserError
from dml.core.plain_text import show_line
from dml.data.image_index import Subset

ADVICE = (
    "SOP, In-Shop and iNaturalist have them, and CSV files with a column category (data=folder)"
)


def categories_of_classes(subset: Subset, option: str) -> np.ndarray:
    """Returns the number of each class's category: C integers from 0, in the order of the names.

    Args:
        subset: images of C classes.
        option: that needs categories, for messages.

    Raises:
        UserError: the dataset has no categories, an image has none, or two images of a class have
            different ones.
    """
    names = image_categories(subset, option)
    _, numbers = np.unique(names, return_inverse=True)
    _, first = np.unique(subset.labels, return_index=True)
    of_classes = numbers[first]
    others = np.flatnonzero(numbers != of_classes[subset.labels])
    if len(others):
        row = others[0]
        label = subset.labels[row]
        pair = sorted([names[row], names[first[label]]])
        shown = " and ".join(f"'{show_line(name)}'" for name in pair)
        raise UserError(
            f"{option}: class {_name_class(subset, label)} has images of the categories {shown}; "
            f"give all images of a class one category"
        )
    return of_classes


def image_categories(subset: Subset, option: str) -> np.ndarray:
    """Returns the category of each of n images, a text.

    Args:
        subset: the images.
        option: that needs categories, for messages.

    Raises:
        UserError: the dataset has no categories, or an image has none.
    """
    names = subset.categories
    if names is None:
        raise UserError(f"{option}: data '{subset.index.name}' has no categories; {ADVICE}")
    missing = np.flatnonzero(names == "")
    if len(missing):
        label = subset.labels[missing[0]]
        raise UserError(
            f"{option}: {len(missing)} of {len(names)} images have no category, first one of class "
            f"{_name_class(subset, label)}; give each image one"
        )
    return names


def _name_class(subset: Subset, label: int) -> str:
    """Returns the name of a class of a subset in quotes, or its number in the dataset."""
    number = int(subset.classes[label])
    names = subset.index.class_names
    return f"'{show_line(names[number])}'" if names else str(number)
