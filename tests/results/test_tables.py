"""Texts that users wrote, in tables."""

from dml.results.tables import Column, Table, markdown_table, terminal_table


def test_markdown_shows_html_as_text():
    table = Table("T <b>", [Column("name", ["<img src=x>", "a|b"])], caption="a < b")
    text = "\n".join(markdown_table(table))
    assert "<" not in text
    assert "&lt;img src=x&gt;" in text
    assert "| a/b |" in text


def test_long_names_are_broken_after_a_point_or_underscore():
    names = ["vit_small_patch14_reg4_dinov2.lvd142m", "sber_vitb32_224 (features projected)"]
    table = Table("", [Column("network", names), Column("x", ["1", "2"])])
    lines = terminal_table(table, 30).plain.splitlines()
    assert [line.split("  ")[0].rstrip() for line in lines[2:]] == [
        "vit_small_patch14_reg4_",
        "dinov2.lvd142m",
        "sber_vitb32_224 (features",
        "projected)",
    ]
    assert max(map(len, lines)) <= 30
