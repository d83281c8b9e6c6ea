"""`data.max_pixels` in training, evaluation, embedding and search."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import dml
from dml.config.identity import digest
from dml.core.errors import ConfigError, UserError
from dml.core.option_values import MAX_IMAGE_PIXELS
from tests.commands import embed, search
from tests.conftest import compose_config

SMALL = ("backbone=small_cnn", "transform.size=16", "data.batch_size=8", "protocol.epochs=1")
SMALL += ("protocol=traditional", "loss=contrastive")
REFUSED = "images have at most"


@pytest.fixture
def photos(tmp_path):
    """Four classes of four images of 16×16 pixels, one of 16×20."""
    folder = tmp_path / "photos"
    for number in range(16):
        side = 20 if number == 15 else 16
        path = folder / f"k{number // 4}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (16, side, 3), np.uint8)
        Image.fromarray(noise).save(path)
    return folder


@pytest.fixture
def words(photos):
    return ("data=folder", f"data.root={photos}", *SMALL)


@pytest.mark.parametrize("cache", ["null", "full"])
def test_training_refuses_or_leaves_out_large_images(run_tiny, words, cache):
    words = (*words, f"data.cache={cache}")
    run_tiny(*words)
    with pytest.raises(UserError, match=REFUSED):  # also what an earlier check has accepted
        run_tiny(*words, "data.max_pixels=319")
    summary, _ = run_tiny(*words, "data.max_pixels=319", "data.skip_corrupt=true")
    assert summary["classes_tested"].startswith("7 images")
    run_tiny(*words, "data.max_pixels=320")


def test_evaluation_takes_the_limit_of_the_run_or_of_the_command(run_tiny, words, evaluated):
    _, folder = run_tiny(*words)
    given = {"run", "data.max_pixels", "overwrite"}
    evaluated(f"run={folder}", "data.max_pixels=320", given=given)
    with pytest.raises(UserError, match=REFUSED):
        evaluated(f"run={folder}", "data.max_pixels=319", "overwrite=true", given=given)


def test_evaluation_leaves_out_damaged_images_as_its_message_says(
    run_tiny, words, photos, evaluated, capsys
):
    _, folder = run_tiny(*words)
    (photos / "k3" / "13.png").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"data\.skip_corrupt=true"):
        evaluated(f"run={folder}", "overwrite=true", given={"run", "overwrite"})
    given = {"run", "overwrite", "data.skip_corrupt"}
    words = (f"run={folder}", "overwrite=true", "data.skip_corrupt=true")
    assert evaluated(*words, given=given)["metrics"]["queries"] == 7
    shown = capsys.readouterr().out
    assert "note: data: 1 of 16 images cannot be decoded and is left out" in shown


def test_embedding_and_search(run_tiny, words, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, folder = run_tiny(*words)
    large = photos / "k3/15.png"
    with pytest.raises(UserError, match=REFUSED):
        dml.embed(folder, [large], options=["data.max_pixels=319"])
    assert embed([str(folder), str(photos), "x.npz", "data.max_pixels=320"]) == 0
    # The limit is no property of the embeddings: the same file is made with another one.
    assert embed([str(folder), str(photos), "x.npz"]) == 0
    query = tmp_path / "query.png"
    query.write_bytes(large.read_bytes())
    assert len(dml.search("x.npz", [query], k=1, max_pixels=320)) == 1
    with pytest.raises(UserError, match=REFUSED):
        dml.search("x.npz", [query], k=1, max_pixels=319)
    capsys.readouterr()
    assert search(["x.npz", str(query), "-k1", "--max-pixels", "319"]) == 1
    assert "raise data.max_pixels (dml search: --max-pixels)" in capsys.readouterr().err
    assert search(["x.npz", str(query), "-k1", "--max-pixels", "320", "--picture", "x.png"]) == 0


def test_the_limit_of_a_file_of_embeddings_is_not_taken(run_tiny, words, photos, tmp_path):
    """Whoever wrote the file may not allow larger images than the user."""
    _, folder = run_tiny(*words)
    options = [f"data.max_pixels={2**31 - 1}"]
    dml.embed(folder, photos, tmp_path / "x.npz", options=options)
    query = tmp_path / "query.png"
    query.write_bytes((photos / "k3/15.png").read_bytes())
    with pytest.raises(UserError, match=REFUSED):
        dml.search(tmp_path / "x.npz", [query], k=1, max_pixels=319)


def test_the_limit_of_a_run_is_not_that_of_other_images(run_tiny, words, photos, monkeypatch):
    _, folder = run_tiny(*words, f"data.max_pixels={2**31 - 1}")
    limits = []
    from dml.data import decode

    check = decode.check_pixels

    def noted(file, most, *more):
        limits.append(most)
        check(file, most, *more)

    monkeypatch.setattr(decode, "check_pixels", noted)
    dml.embed(folder, [photos / "k3/15.png"])
    assert set(limits) == {MAX_IMAGE_PIXELS}


@pytest.mark.parametrize("wrong", ["0", "-1", "2147483648", "1e9", "x", "null", "1.5"])
def test_wrong_limits_are_refused(run_tiny, words, wrong):
    with pytest.raises(ConfigError, match=r"data\.max_pixels"):
        run_tiny(*words, f"data.max_pixels={wrong}")


@pytest.mark.parametrize("wrong", [0, -1, 2**31])
def test_wrong_limits_of_a_search_are_refused(wrong):
    with pytest.raises(UserError, match="max_pixels"):
        dml.search("x.npz", [0], max_pixels=wrong)


def test_runs_with_the_default_keep_their_digest():
    plain = compose_config("data=digits")
    stored = compose_config("data=digits", "~data.max_pixels")
    assert digest(plain) == digest(stored)
    assert digest(plain) != digest(compose_config("data=digits", "data.max_pixels=1000"))
