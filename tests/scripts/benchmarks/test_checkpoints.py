"""The suite `checkpoints` at a tiny size."""

from scripts.benchmarks import checkpoints


def test_the_whole_suite_at_a_tiny_size(capsys, tmp_path):
    words = "--network small_cnn --batch 2 --size 8 --steps 1 --rounds 1 --folder"
    checkpoints.main([*words.split(), str(tmp_path)])
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert "small_cnn, batch 2 at 8, 1 steps" in first
    assert [row[:16].strip() for row in rows] == ["none", "in its thread", "beside"]
    assert "1.00x" in rows[0]
    assert not list(tmp_path.iterdir())
