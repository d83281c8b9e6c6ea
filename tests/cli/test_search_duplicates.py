"""`dml search --duplicates`: table, CSV, picture, and wrong options."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dml.cli.search_command import main
from dml.core.errors import ConfigError


@pytest.fixture
def file(tmp_path):
    """Forty images, of which the last ten are copies of the first, and one equals another."""
    points = np.random.default_rng(0).standard_normal((30, 16))
    points = np.concatenate([points, points[:10] + 1e-3, points[20:21]]).astype(np.float32)
    names = []
    for row in range(len(points)):
        names.append(str(tmp_path / f"{row}.png"))
        Image.new("RGB", (9, 7), (5 * row, 0, 0)).save(names[-1])
    splits = np.array(["train"] * 30 + ["test"] * 11)
    np.savez(tmp_path / "x.npz", embeddings=points, paths=names, splits=splits)
    return tmp_path / "x.npz"


def test_csv_and_picture(file, capsys):
    picture = file.parent / "groups.png"
    assert main([str(file), "--duplicates", "--csv", "--picture", str(picture)]) == 0
    shown = capsys.readouterr()
    pairs = pd.read_csv(io.StringIO(shown.out))
    assert pairs[["row", "other_row"]].to_numpy().tolist()[0] == [20, 40]
    assert sorted(pairs["other_row"]) == list(range(30, 41))
    assert set(pairs["across"]) == {"splits"}
    assert pairs["path"][0].endswith("20.png")
    assert "have a neighbor below it" in shown.err
    assert Image.open(picture).size[0] > 100


def test_a_table_without_a_gap(file, capsys):
    points = np.random.default_rng(0).standard_normal((50, 4))
    points[7] = points[3]
    np.savez(file, embeddings=points)
    main([str(file), "--duplicates"])
    shown = capsys.readouterr()
    assert "set a distance with --max-distance" in shown.err
    assert shown.out.count("\n") == 4  # two tables of a row
    main([str(file), "--duplicates", "--max-distance", "0"])
    assert "pairs       1, of 2 images in 1 group" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--duplicates", "3"], "--duplicates: all images are compared; leave out '3'"),
        (["--duplicates", "-k", "3"], "-k: has no effect"),
        (["--duplicates", "--max-distance", "-1"], "max-distance"),
        (["--duplicates", "--max-distance", "nan"], "max-distance"),
        (["--duplicates", "--classify"], "--classify: has no effect with --duplicates"),
        ([], "missing: query"),
    ],
)
def test_wrong_options(file, words, message):
    with pytest.raises(ConfigError, match=message):
        main([str(file), *words])
