import sys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from scripts.studies.emoji.codes import find_codes, read_set
from scripts.studies.emoji.drawings import SIDE, draw_classes
from scripts.studies.emoji.sets import SETS
from tests.scripts.studies.emoji.packages import Renderer, packages, unpacked

APPLE, DOG = 0x1F34E, 0x1F415


@pytest.fixture(autouse=True)
def renderer(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", Renderer)


def draw(folder, made):
    unpacked(folder, made)
    sets = {one.name: read_set(folder / one.name / "package") for one in SETS}
    return draw_classes(sets, find_codes(sets))


def test_every_drawing_is_rendered_on_white(tmp_path):
    classes = draw(tmp_path, packages())
    assert [len(drawings) for drawings in classes.values()] == [9] * 4
    assert list(classes) == sorted(classes)
    picture = Image.open(BytesIO(classes[DOG]["twemoji"].png)).convert("RGB")
    assert picture.size == (SIDE, SIDE)
    assert np.asarray(picture)[-1, -1].tolist() == [255, 255, 255]
    assert len({d.sha256 for drawings in classes.values() for d in drawings.values()}) == 36


def test_blank_shared_and_copied_drawings_are_left_out(tmp_path):
    made = packages()
    made["openmoji"].bodies["dog"] = '<rect x="0" y="0" width="8" height="8" fill="#ffffff"/>'
    made["twemoji"].bodies["dog"] = made["twemoji"].bodies["rocket"]
    newer = '<rect x="4" y="4" width="12" height="12" fill="#804020"/>'
    made["noto"].bodies["dog"] = newer
    made["noto-v1"].bodies["dog"] = newer.replace("804020", "884422")  # hardly differs
    made["emojione-v1"].bodies["red-apple"] = made["emojione"].bodies["dog"]  # not the same emoji
    classes = draw(tmp_path, made)
    assert {one.name for one in SETS} - set(classes[DOG]) == {"openmoji", "twemoji", "noto-v1"}
    assert {one.name for one in SETS} - set(classes[0x1F680]) == {"twemoji"}
    assert len(classes[APPLE]) == 9


def test_the_renderer_itself_draws_what_the_tests_expect(tmp_path, monkeypatch):
    expected = draw(tmp_path, packages())
    monkeypatch.delitem(sys.modules, "resvg_py")
    pytest.importorskip("resvg_py")
    drawn = draw(tmp_path / "again", packages())
    for code, drawings in expected.items():
        for name, drawing in drawings.items():
            assert np.allclose(drawn[code][name].thumbnail, drawing.thumbnail, atol=0.01)
