from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.readers.glyphs import characters, draw_glyphs, read_glyphs, text_faces


def test_first_half_of_the_characters_trains_and_the_files_are_kept(tmp_path: Path):
    index = read_glyphs(tmp_path, classes=4, per_class=17)
    assert index.stand_in
    assert index.images.shape == (68, 32, 32, 3)
    assert index.images.dtype == np.uint8
    assert index.subset("train").classes.tolist() == [0, 1]
    (kept,) = (tmp_path / "glyphs").iterdir()
    written = kept.stat().st_mtime_ns
    again = read_glyphs(tmp_path, classes=4, per_class=17)
    assert kept.stat().st_mtime_ns == written
    assert np.array_equal(again.images, index.images)
    assert np.array_equal(draw_glyphs(0, classes=4, per_class=17), index.images[..., 1])
    assert not np.array_equal(read_glyphs(tmp_path, 1, 4, 17).images, index.images)


def test_a_folder_that_cannot_be_written_to_is_named_with_the_option(tmp_path: Path):
    (tmp_path / "glyphs").touch()
    with pytest.raises(UserError, match=r"^data\.root: cannot write to .*glyphs .*set data\.root="):
        read_glyphs(tmp_path, classes=4, per_class=2)


def test_two_hundred_characters_are_held_by_sixteen_faces_and_look_different():
    chosen = characters(200)
    assert len(set(chosen)) == 200
    assert chosen[:3] == ["0", "1", "2"]
    assert chosen[10] == "A"
    assert "Α" not in chosen, "a Greek capital that looks like the Latin A"
    assert "é" not in chosen
    faces = text_faces()
    assert all(sum(ord(one) in held for held in faces.values()) >= 16 for one in chosen)
