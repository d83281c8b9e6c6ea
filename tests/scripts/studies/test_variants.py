"""Variants of an arm are trained, stored and drawn."""

import csv

import pytest

from scripts.studies import variants
from scripts.studies.variants import Explanation, explain


def test_variants_are_trained_once_and_drawn(tmp_path, monkeypatch, capsys):
    about = Explanation(
        "claims_mean_field",
        ("loss=ms", "data=digits", "backbone.weights=none", "backbone.width=4"),
        {f"rate {rate}": (f"optim.lr={rate}",) for rate in (1e-3, 3e-3)},
        {"test_map_at_r": "MAP@R", "loss": "loss"},
    )
    monkeypatch.setitem(variants.EXPLANATIONS, "rates", about)
    small = ("protocol.epochs=2", "protocol.steps_per_epoch=2", f"outputs={tmp_path}")
    points = explain("rates", tmp_path / "why.png", small)
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "why.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == [one.value for one in points]
    scores = [one for one in points if one.measure == "test_map_at_r"]
    # two variants, three repeats, before training and after each epoch
    assert len(scores) == 2 * 3 * 3
    assert len({one.value for one in scores if one.step == 4}) > 3
    assert explain("rates", tmp_path / "again.png", small) == points
    assert capsys.readouterr().out.count("epoch 1 of 2") == 2 * 3


def test_every_explanation_belongs_to_a_pilot():
    for subject, about in variants.EXPLANATIONS.items():
        assert about.experiment == f"claims_{subject}"
        assert len(about.variants) % about.groups == 0


def test_an_unknown_option_is_one_line(capsys):
    from tests.scripts.loading import load_script

    with pytest.raises(SystemExit):
        load_script("explain_claims").main(["nothing"])
    assert "invalid choice" in capsys.readouterr().err
