"""A download of any command ends within two seconds of a signal, and the command continues."""

import hashlib
import os
import signal
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from dml.core.download import Checksum
from dml.core.timm_records import find_record
from dml.data.preparation.sources import SOURCES
from tests import forked
from tests.commands import prepare, train
from tests.core.servers import Behavior, serving
from tests.data.preparation.test_prepare import publish
from tests.waiting import wait_until

MODEL = "test_vit.r160_in1k"
SILENT = 1_100_000  # bytes, of which the first MiB is written
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    find_record.cache_clear()


@pytest.fixture(params=["weights of the hub", "weights of a URL", "a training", "a dataset"])
def download(request, tmp_path, monkeypatch):
    """A folder for the server, words of the command, and what names the server's address."""
    site = tmp_path / "site"
    if request.param == "a dataset":
        cub = publish("cub", tmp_path)
        (file,) = cub.files
        folder = tmp_path / "tree" / cub.folder
        (folder / "padding").write_bytes(os.urandom(2 * SILENT))
        with tarfile.open(site / file.name, "w:gz") as tar:
            tar.add(folder, cub.folder)
        digits = hashlib.md5((site / file.name).read_bytes()).hexdigest()
        files = (replace(file, checksum=Checksum("md5", digits)),)
        monkeypatch.setitem(SOURCES, "cub", replace(cub, files=files))
        return site, lambda address: ["cub", "--no-weights", "--url", f"{address}/{file.name}"]
    model = site / "timm" / MODEL
    model.mkdir(parents=True)
    padding = {"head.more": torch.rand(SILENT)}
    save_file(timm.create_model("test_vit").state_dict() | padding, model / "model.safetensors")
    if request.param in ("weights of a URL", "a training"):
        content = (model / "model.safetensors").read_bytes()
        name = f"vit-{hashlib.sha256(content).hexdigest()[:8]}.safetensors"
        (site / name).write_bytes(content)
        words = ["data=digits", "backbone=timm", f"backbone.model={MODEL}"]
        if request.param == "a training":
            words = ["train", *words, "backbone.input_size=32", "protocol.epochs=0"]
        else:
            words = ["for", *words]
        return site, lambda address: [*words, f"backbone.weights={address}/{name}"]

    def use_hub(address):
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        return ["weights", "--backbone", f"timm:{MODEL}"]

    return site, use_hub


def run(words) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if words[0] == "train":
        sys.exit(train(words[1:]))
    sys.exit(prepare(words))


def wait_for_bytes(folder: Path) -> None:
    wait_until(lambda: any(path.stat().st_size for path in folder.rglob("*.partial")))


@pytest.mark.parametrize("stop", SIGNALS)
def test_a_signal_ends_a_download_and_the_same_command_continues(download, tmp_path, stop):
    site, use = download
    with serving(site, Behavior(hub=True, silent_after=SILENT)) as address:
        process = forked.context().Process(target=run, args=(use(address),))
        process.start()
        wait_for_bytes(tmp_path)
        os.kill(process.pid, stop)
        started = time.monotonic()
        process.join(20)
        assert time.monotonic() - started < 2
        assert process.exitcode == SIGNALS[stop]
    behavior = Behavior(hub=True)
    with serving(site, behavior) as address:
        process = forked.context().Process(target=run, args=(use(address),))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    (asked,) = behavior.requests
    assert asked == "bytes=1048576-"
