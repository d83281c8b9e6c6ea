from PIL import Image

from studies import draw_concepts


def test_a_picture_by_its_name(tmp_path, capsys):
    assert draw_concepts.main(["metrics", "--out", str(tmp_path)]) == 0
    assert Image.open(tmp_path / "metrics.png").width > 500
    assert str(tmp_path / "metrics.png") in capsys.readouterr().out
