"""Texts that users wrote, in tables."""

import pandas as pd

from dml.results.tables import Cell, Column, Table, csv_text, markdown_table


def test_markdown_shows_html_as_text():
    table = Table("T <b>", [Column("name", [Cell("<img src=x>")])], caption="a < b")
    text = "\n".join(markdown_table(table))
    assert "<" not in text
    assert "&lt;img src=x&gt;" in text


def test_csv_has_no_formulas():
    frame = pd.DataFrame({"name": ["=1+1", "@x", "a=b", "-0.5"], "score": [-1.0, 2.0, 3.0, 4.0]})
    assert csv_text(frame) == "name,score\n'=1+1,-1.0\n'@x,2.0\na=b,3.0\n-0.5,4.0\n"
