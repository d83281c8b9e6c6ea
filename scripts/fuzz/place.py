"""The folder in which commands are tried: a run, embeddings, photos, and files of other kinds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from scripts.fuzz.cases import Case
from scripts.fuzz.commands import COMMANDS
from scripts.fuzz.process import start, status_of

SMALL_RUN = (
    *("data=digits", "device=cpu", "protocol.epochs=1", "embedder.size=8", "backbone.width=4"),
    *("data.eval_batch_size=1000", "loss=ms", "outputs=outputs"),
)


def prepare(folder: Path) -> None:
    """Makes the folder of which every command gets a copy.

    Raises:
        RuntimeError: the run cannot be trained.
    """
    _draw_photos(folder / "photos")
    labels = np.repeat(np.arange(4), 4)
    vectors = np.random.default_rng(0).normal(size=(len(labels), 8))
    np.savez(folder / "emb.npz", embeddings=vectors.astype("float32"), labels=labels)
    (folder / "list.csv").write_text("path,label\nphotos/0/0.png,a\nphotos/1/0.png,b\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.txt").write_text("mine")
    _train(folder)


def _draw_photos(folder: Path) -> None:
    for label in range(4):
        of_class = folder / str(label)
        of_class.mkdir(parents=True)
        for number in range(4):
            Image.effect_noise((8, 8), 40 * label + 10).save(of_class / f"{number}.png")


def _train(folder: Path) -> None:
    log = folder.parent / "prepared.log"
    case = Case("train", COMMANDS["train"], SMALL_RUN, wrong=False)
    if status_of(start(case, folder, log)):
        raise RuntimeError(log.read_text())
    (summary,) = folder.glob("outputs/**/summary.json")
    shutil.copytree(summary.parent, folder / "run")


def copy(prepared: Path, place: Path) -> Path:
    """Returns a copy in `place`, with a named pipe; a file is outside of it."""
    here = place / "here"
    shutil.copytree(prepared, here)
    os.mkfifo(here / "pipe")
    (place / "outside.txt").write_text("mine")
    return here


def snapshot(place: Path) -> dict[str, bytes | int]:
    """Returns the bytes of all files but locks, and the modes of all else, by their paths."""
    found: dict[str, bytes | int] = {}
    for path in place.rglob("*"):
        if path.suffix == ".lock":
            continue
        is_file = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(place))] = path.read_bytes() if is_file else path.lstat().st_mode
    return found
