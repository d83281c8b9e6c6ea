"""Messages of the suites of `scripts/benchmark.py` for wrong options."""

import importlib

import pytest
import torch


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("input --images 64", "--images: '64' must be an integer, at least 128"),
        ("losses --cases mfcwm", "--cases: unknown 'mfcwm'"),
        ("retrieval --backends fais", "--backends: unknown 'fais'; did you mean 'faiss'?"),
        ("train --batch 32,x", "--batch: 'x' must be an integer, at least 1"),
        ("losses --device cuda", "--device: no GPU is available to torch"),
    ],
)
def test_a_wrong_option_is_named(words, problem, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    suite, *options = words.split()
    with pytest.raises(SystemExit) as left:
        importlib.import_module(f"scripts.benchmarks.{suite}").main(options)
    assert left.value.code == 2
    assert f"error: argument {problem}" in capsys.readouterr().err
