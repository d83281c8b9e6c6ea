"""Text that neither GitHub nor the site takes for formatting."""

import pytest
from markdown import markdown

from scripts.docs.markdown import code, escape, first_sentence, table


@pytest.mark.parametrize(
    "text",
    ["a | b", "<file> | <url>", "a*b*c", "$x$", "[T1, T3](x)", "test_… and _target_", "[x]_+ _y_"],
)
def test_escaped_text_is_shown_as_it_is(text):
    html = markdown(f"| a |\n| --- |\n| {escape(text)} |", extensions=["tables"])
    shown = html.partition("<td>")[2].partition("</td>")[0]
    for entity, one in (("&lt;", "<"), ("&gt;", ">"), ("&#124;", "|"), ("&#36;", "$")):
        shown = shown.replace(entity, one)
    for number, one in (("42", "*"), ("91", "["), ("95", "_")):
        shown = shown.replace(f"&#{number};", one)
    assert shown == text


def test_code_in_text_stays_code():
    assert escape("`optim.lr` × <n>") == "`optim.lr` × &lt;n&gt;"
    assert code("a|b") == "<code>a&#124;b</code>"


def test_empty_columns_are_left_out():
    assert table(("a", "b"), [("1", ""), ("2", "")]) == "| a |\n| --- |\n| 1 |\n| 2 |"
    assert table(("a",), []) == ""


def test_a_sentence_ends_at_a_full_stop_before_a_capital():
    assert first_sentence("MFCont, mft Eq. 8: hinges. Then more.") == "MFCont, mft Eq. 8: hinges"
