"""studies/draw_emoji.py: mistakes are one line."""

import pytest

from studies import draw_emoji


@pytest.fixture(scope="module")
def draw():
    return draw_emoji.main


def test_a_run_of_other_data(draw, run_tiny, tmp_path, monkeypatch, capsys):
    _, folder = run_tiny("protocol.epochs=0")
    for words in ([str(folder)], [str(tmp_path)], ["."], [".."], ["/"]):
        monkeypatch.chdir(folder if words == ["."] else tmp_path)
        capsys.readouterr()
        assert draw([*words, "--out", str(tmp_path / "x.png")]) in (1, 2)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: run: ")
    assert not (tmp_path / "x.png").exists()


def test_the_word_of_trust_is_taken(draw, run_tiny, own_modules, tmp_path, monkeypatch, capsys):
    """The refusal advises it."""
    _, folder = run_tiny("protocol.epochs=0")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("dml.tracking.Tracker", "my_track.Tracker"))
    words = [str(folder), "--out", str(tmp_path / "x.png")]
    assert draw(words) == 2
    assert "--trust" in capsys.readouterr().err
    assert draw([*words, "--trust"]) == 1
    assert "give a run with data=emoji" in capsys.readouterr().err
