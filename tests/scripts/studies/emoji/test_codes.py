import pytest

from scripts.studies.emoji.codes import find_codes, read_mozilla_table, read_set, single_code_point
from scripts.studies.emoji.sets import SETS
from tests.scripts.studies.emoji.packages import NAMES, packages, unpacked

CODES = {int(code, 16) for code in NAMES}


def read_all(folder, made):
    unpacked(folder, made)
    return find_codes({one.name: read_set(folder / one.name / "package") for one in SETS})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1f600", 0x1F600),
        ("2764-fe0f", 0x2764),
        ("1f468-200d-1f4bb", None),  # a profession
        ("31-fe0f-20e3", None),  # a keycap
        ("1f44d-1f3fd", None),  # a skin tone
        ("1f1e9-1f1ea", None),  # a flag
        ("e0c3", None),  # private
    ],
)
def test_only_single_code_points_are_emoji_of_their_own(text, code):
    assert single_code_point(text) == code


def test_all_sets_are_mapped_by_codes_names_and_the_table(tmp_path):
    found = read_all(tmp_path, packages())
    assert {name: set(drawings) for name, drawings in found.drawings.items()} == {
        one.name: CODES for one in SETS
    }
    assert found.drawings["fxemoji"][0x1F34E] == "redapple"
    assert found.names[0x1F680] == "rocket"
    assert found.groups == {0x1F34E: "Food & Drink", 0x1F415: "Animals & Nature"}


def test_the_table_is_sorted_and_unambiguous():
    table = read_mozilla_table()
    assert list(table) == sorted(table)
    assert len(set(table.values())) == len(table) > 1000
    assert all(single_code_point(f"{code:x}") == code for code in table.values())
