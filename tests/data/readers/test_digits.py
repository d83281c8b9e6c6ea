import numpy as np

from dml.data.readers.digits import read_digits


def test_digits_has_the_published_counts_and_full_range():
    index = read_digits()
    assert index.stand_in
    train, test = index.subset("train"), index.subset("test")
    assert (len(train), train.num_classes) == (901, 5)
    assert (len(test), test.num_classes) == (896, 5)
    assert test.classes.tolist() == [5, 6, 7, 8, 9]
    assert index.images.shape == (1797, 8, 8, 3)
    assert (index.images.min(), index.images.max()) == (0, 255)
    assert np.array_equal(index.images[..., 0], index.images[..., 2])
    levels = [int(level * 255 / 16 + 0.5) for level in range(17)]  # to the nearest
    assert np.unique(index.images).tolist() == levels
