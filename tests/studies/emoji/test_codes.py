import pytest

from studies.emoji.codes import read_mozilla_table, single_code_point


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


def test_the_table_is_sorted_and_unambiguous():
    table = read_mozilla_table()
    assert list(table) == sorted(table)
    assert len(set(table.values())) == len(table) > 1000
    assert all(single_code_point(f"{code:x}") == code for code in table.values())
