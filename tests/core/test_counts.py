"""Numbers agree with their nouns and verbs."""

import pytest

from dml.core.counts import count_of, verb_for


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "image", "0 images"),
        (1, "image", "1 image"),
        (2, "image", "2 images"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
        (1234, "test image", "1,234 test images"),
    ],
)
def test_a_noun_agrees_with_its_number(number, noun, text):
    assert count_of(number, noun) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 queries"), (1, "1 query"), (2000, "2,000 queries")]
)
def test_a_plural_of_another_form(number, text):
    assert count_of(number, "query", "queries") == text


@pytest.mark.parametrize(("number", "verb"), [(0, "are"), (1, "is"), (2, "are")])
def test_a_verb_agrees_with_its_number(number, verb):
    assert verb_for(number, "is", "are") == verb
