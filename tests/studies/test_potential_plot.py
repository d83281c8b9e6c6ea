from __future__ import annotations

from studies.show_field import main


def test_the_field_is_drawn(tmp_path):
    assert main(["--out", str(tmp_path / "field.png")]) == 0
    assert (tmp_path / "field.png").stat().st_size > 10_000
