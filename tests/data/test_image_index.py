import numpy as np

from dml.data.image_index import ImageIndex


def small_index() -> ImageIndex:
    images = np.arange(6 * 2 * 2 * 3, dtype=np.uint8).reshape(6, 2, 2, 3)
    labels = np.array([0, 2, 1, 2, 0, 3])
    roles = np.array(["train", "test", "train", "query", "train", "gallery"])
    return ImageIndex("small", images, labels, roles)


def test_subset_keeps_index_order_and_makes_labels_contiguous():
    subset = small_index().subset("test", "query", "gallery")
    assert subset.rows.tolist() == [1, 3, 5]
    assert subset.labels.tolist() == [0, 0, 1]
    assert subset.classes.tolist() == [2, 3]
    assert (len(subset), subset.num_classes) == (3, 2)
