"""Texts that users wrote, in tables."""

from dml.results.tables import Column, Table, markdown_table


def test_markdown_shows_html_as_text():
    table = Table("T <b>", [Column("name", ["<img src=x>", "a|b"])], caption="a < b")
    text = "\n".join(markdown_table(table))
    assert "<" not in text
    assert "&lt;img src=x&gt;" in text
    assert "| a/b |" in text
