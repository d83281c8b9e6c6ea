"""Maps of stored embeddings, computed once."""

from __future__ import annotations

import numpy as np

from dml.reporting import embedding_maps as module
from dml.reporting.embedding_maps import (
    embedding_maps,
    list_save_commands,
    load_or_compute_map,
    load_points,
)
from dml.reporting.finished_runs import collect_runs
from dml.reporting.run_groups import group_runs
from tests.reporting.made_runs import write_run


def test_a_map_is_computed_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "compute_map", lambda p: calls.append(p) or p[:, :2])
    points, path = np.eye(6, dtype=np.float32), tmp_path / "figures" / "embedding_map.npz"
    for given in (points, points, 2 * points, 2 * points):
        assert (load_or_compute_map(given, path) == given[:, :2]).all()
    assert len(calls) == 2
    path.write_bytes(b"PK cut short")
    load_or_compute_map(points, path)
    assert len(calls) == 3


def test_maps_of_stored_embeddings(mlrc, tmp_path):
    write_run(tmp_path, mlrc(), [[0.1]])
    (group,) = group_runs(collect_runs(tmp_path, "mft_table1").finished)
    named = [("mf_cwms", group)]
    assert list(embedding_maps(named)) == []
    folder = group.first.folder
    assert list_save_commands(named) == [f"python evaluate.py run={folder} save=float16"]
    labels = np.repeat(np.arange(20), 4)
    points = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    np.savez(folder / "embeddings.npz", embeddings=points, labels=labels)
    some, of = load_points(folder / "embeddings.npz")
    assert some.shape == (60, 6)
    assert of.max() == 14  # the first 15 classes
    (picture,) = embedding_maps(named)
    assert "60 test images of 15 unseen classes" in picture.alt
    assert picture.light.startswith("data:image/png;base64,")
    assert list_save_commands(named) == []
