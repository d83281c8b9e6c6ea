from dml.data.digits import read_digits
from dml.data.image_check import find_undecodable


def test_images_in_memory_have_nothing_to_decode():
    assert find_undecodable(read_digits()) == []
