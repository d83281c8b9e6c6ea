"""Images of one's own reader are checked once, and usual forms are converted."""

import numpy as np
import pytest
import torch
from PIL import Image

from dml.core.errors import UserError
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.reader_check import check_reader

RAW = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 0, 1, 1])
ROLES = np.array(["train", "train", "test", "test"])


class Items:
    """A sequence without an end for iteration, as datasets of PyTorch are."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return len(RAW)

    def __getitem__(self, row):
        return self.make(RAW[row % len(RAW)])


FORMS = {
    "floats from 0 to 1": lambda x: (x / 255).astype("f4"),
    "doubles": lambda x: x / 255,
    "half": lambda x: (x / 255).astype("f2"),
    "16 bits": lambda x: x.astype("u2") * 257,
    "channels in front": lambda x: np.moveaxis(x, -1, -3),
    "a tensor": torch.from_numpy,
    "a tensor of floats": lambda x: torch.from_numpy(x).movedim(-1, -3) / 255,
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_usual_forms_are_taken_as_such_with_a_note(form, whole):
    images = FORMS[form](RAW) if whole else Items(FORMS[form])
    index = check_reader(ImageIndex("mine", images, LABELS, ROLES))
    (note,) = index.notes
    assert "are converted to uint8" in note
    for row in range(4):
        pixels = ImageSource.of(index)[row]
        assert pixels.dtype == torch.uint8
        difference = np.abs(pixels.permute(1, 2, 0).numpy().astype(int) - RAW[row])
        assert difference.max() <= (1 if form == "half" else 0)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("largest", [4096, 65535])
def test_numbers_of_16_bits_keep_the_upper_8(whole, largest):
    one = np.linspace(0, largest, RAW[0].size).astype("u2").reshape(RAW[0].shape)
    numbers = np.stack([one, one[::-1], one[:, ::-1], one])
    images = numbers if whole else [*numbers]
    index = check_reader(ImageIndex("mine", images, LABELS, ROLES))
    found = np.stack([np.asarray(index.images[row]) for row in range(4)])
    assert np.array_equal(found, numbers // 256)


@pytest.mark.parametrize("whole", [True, False])
def test_numbers_from_0_to_1_are_rounded(whole):
    numbers = np.linspace(0, 1, RAW.size).astype("f4").reshape(RAW.shape)
    index = check_reader(ImageIndex("mine", numbers if whole else [*numbers], LABELS, ROLES))
    found = np.stack([np.asarray(index.images[row]) for row in range(4)])
    assert np.abs(found - numbers * 255.0).max() <= 0.5001


@pytest.mark.parametrize("height", [1, 2, 3, 4])
def test_low_images_have_their_channels_last(height):
    images = RAW[:, :height] / 255
    index = check_reader(ImageIndex("mine", images, LABELS, ROLES))
    assert np.array_equal(index.images, RAW[:, :height])
    items = check_reader(ImageIndex("mine", [*images], LABELS, ROLES))
    assert np.array_equal(items.images[3], RAW[3, :height])


@pytest.mark.parametrize("images", [RAW, RAW[..., 0], Items(lambda x: x), Items(Image.fromarray)])
def test_forms_of_training_are_taken_without_a_note(images):
    index = ImageIndex("mine", images, LABELS, ROLES)
    assert check_reader(index) is index


def test_paths_as_texts_are_files():
    index = check_reader(ImageIndex("mine", Items(lambda x: "a.png"), LABELS, ROLES))
    assert index.files is not None
    assert len(index.images) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: (x / 127.5 - 1).astype("f4"), r"float32 from -.* to .*; give uint8 pixels"),
        (lambda x: x.astype("f4"), r"float32 from .* to 2\d\d; give uint8"),
        (lambda x: np.where(x == x.max(), np.nan, x / 255), "float64 from nan to nan"),
        (lambda x: x.astype("i8"), "int64 from"),
        (lambda x: x > 9, "bool from"),
        (lambda x: x.astype("u2") * 16, "uint16 from"),
    ],
)
def test_other_types_and_ranges_are_named(make, message):
    for images in (make(RAW), Items(make)):
        with pytest.raises(UserError, match=r"^data\.reader: images.*" + message):
            check_reader(ImageIndex("mine", images, LABELS, ROLES))


def test_items_of_datasets_of_pytorch_are_named():
    pairs = Items(lambda x: (Image.fromarray(x), 3))
    with pytest.raises(UserError, match=r"images\[0\] is a tuple of Image and int; give the image"):
        check_reader(ImageIndex("mine", pairs, LABELS, ROLES))
    with pytest.raises(UserError, match=r"images\[0\] is of type NoneType"):
        check_reader(ImageIndex("mine", Items(lambda x: None), LABELS, ROLES))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS.astype(float), "got float64"),
        (LABELS.astype(str), r"numpy.unique\(labels, return_inverse=True\)"),
        (np.eye(4), r"shape \(4, 4\)"),
        (LABELS - 1, "must not be negative, got -1"),
    ],
)
def test_labels_that_are_no_classes_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        ImageIndex("mine", RAW, labels, ROLES)


@pytest.mark.parametrize("kind", [list, torch.from_numpy, lambda x: x.astype("u1")])
def test_labels_of_any_sequence_of_integers_are_taken(kind):
    index = ImageIndex("mine", RAW, kind(LABELS), ROLES.tolist())
    assert index.subset("test").labels.tolist() == [0, 0]


@pytest.mark.filterwarnings("error")
def test_pixels_that_cannot_be_written_are_read_without_a_warning():
    images = RAW.copy()
    images.flags.writeable = False
    pixels = ImageSource.of(ImageIndex("mine", images, LABELS, ROLES))[0]
    assert torch.equal(pixels.permute(1, 2, 0), torch.from_numpy(RAW[0]))
