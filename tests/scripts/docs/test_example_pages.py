"""Pages of examples hold what their code prints."""

from pathlib import Path

import pytest

from scripts.docs.example_pages import run_blocks

ROOT = Path(__file__).parents[3]


def test_blocks_share_variables_and_are_followed_by_what_they_print():
    text = (
        "# T\n\n```python\nx = 2\n```\n\nText.\n\n```python\nprint(x + 1)\n```\n\n```sh\nls\n```\n"
    )
    assert run_blocks(text) == text.replace(
        "print(x + 1)\n```\n", "print(x + 1)\n```\n\n```text\n3\n```\n"
    )


def test_code_that_fails_makes_no_page():
    with pytest.raises(ZeroDivisionError):
        run_blocks("```python\n1 / 0\n```\n")


@pytest.mark.parametrize("name", ["losses.md", "scores.md"])
def test_every_block_of_a_page_prints(name):
    page = (ROOT / "docs" / "examples" / name).read_text()
    assert page.count("```text") == page.count("```python") >= 3
