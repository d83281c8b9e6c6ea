from pathlib import Path

from studies.emoji.sets import PICTURE_SETS, SETS

NOTE = Path(__file__).parents[3] / "data" / "README.md"


def test_pictures_hold_no_drawing_under_share_alike():
    left_out = {one.name for one in SETS} - {one.name for one in PICTURE_SETS}
    assert left_out == {"openmoji", "emojione-v1"}
    assert PICTURE_SETS[0].credit == "Noto Emoji (Google, Apache-2.0)"


def test_the_note_on_the_data_credits_every_set():
    note = NOTE.read_text(encoding="utf-8")
    for one in SETS:
        assert f"| `{one.name}` {one.version} | {one.title}, {one.author} | {one.license} |" in note
