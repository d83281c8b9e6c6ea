"""Weights of timm's networks: from the hub, its cache, the mirror, or the second address."""

import hashlib
import logging
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from dml.core.download import Checksum
from dml.core.errors import UserError
from dml.core.timm_records import find_record
from dml.models import timm_weights
from dml.models.backbones import TimmBackbone
from dml.models.timm_weights import CHECKSUMS, describe_timm_weights, find_timm_weights
from dml.models.weights import downloaded_path
from tests.core.servers import Behavior, serving

MODEL = "test_vit.r160_in1k"
FILE = "test_vit-second.pth"
DEAD = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_memory():
    timm_weights._say.cache_clear()
    find_record.cache_clear()
    yield
    find_record.cache_clear()


@pytest.fixture
def network():
    torch.manual_seed(0)
    return timm.create_model("test_vit").eval()


@pytest.fixture
def site(tmp_path, network) -> Path:
    """A folder that holds the network as the hub does, and at a second address."""
    folder = tmp_path / "site" / "timm" / MODEL
    folder.mkdir(parents=True)
    save_file(network.state_dict(), folder / "model.safetensors")
    torch.save(network.state_dict(), tmp_path / "site" / FILE)
    return tmp_path / "site"


@pytest.fixture
def use(monkeypatch, site):
    """Names the hub and the second address of the network; the second has a checksum or not."""

    def set_addresses(hub, second, published=True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub)
        template = f"{hub}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("dml.core.hub.ANSWER_SECONDS", 1.0)
        monkeypatch.setattr("dml.core.download.SILENT_SECONDS", 1)
        record = find_record(MODEL) | {"url": second and f"{second}/{FILE}"}
        monkeypatch.setattr("dml.models.timm_weights.find_record", lambda model: record)
        content = (site / FILE).read_bytes()
        checksum = Checksum("sha256", hashlib.sha256(content).hexdigest(), len(content))
        monkeypatch.setattr(timm_weights, "CHECKSUMS", {FILE: checksum} if published else {})

    return set_addresses


def is_the_network(network) -> bool:
    backbone = TimmBackbone(MODEL, "imagenet", 160).eval()
    images = torch.randn(1, 3, 160, 160)
    with torch.no_grad():
        return torch.equal(backbone(images), network.forward_features(images))


def test_the_hub_is_asked_once_and_its_file_is_used_without_a_request(site, use, network, capsys):
    hub, second = Behavior(hub=True), Behavior()
    with serving(site, hub) as first, serving(site, second) as other:
        use(first, other)
        assert describe_timm_weights(MODEL).path is None
        TimmBackbone.fetch_weights(model=MODEL)
        assert (len(hub.requests), len(second.requests)) == (1, 0)
        asked = len(hub.questions)
        assert is_the_network(network)
        assert describe_timm_weights(MODEL).path.is_file()
        assert (len(hub.requests), len(hub.questions)) == (1, asked)
    use(DEAD, DEAD)
    assert is_the_network(network)
    assert capsys.readouterr() == ("", "")


FAILURES = {
    "silent": (Behavior(hub=True, silent_after=0), "silent for 1 s"),
    "not found": (Behavior(hub=True, status=404), "answers 404"),
    "half": (Behavior(hub=True, silent_after=100), "silent for 1 s"),
    "dead": (Behavior(), "Connection refused"),
    "certificate": (Behavior(hub=True, encrypted=True), "CERTIFICATE_VERIFY_FAILED"),
}


@pytest.mark.promise(
    "guides/without_internet.md",
    "the hub is dead, silent, or breaks off in the middle: timm's second address is tried, and a "
    "line says so",
)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("published", [True, False])
def test_the_second_address_delivers_and_a_line_says_so(
    site, use, network, capsys, failure, published
):
    behavior, reason = FAILURES[failure]
    second = Behavior()
    with serving(site, behavior) as hub, serving(site, second) as other:
        use(DEAD if failure == "dead" else hub, other, published)
        assert is_the_network(network)
        (line,) = capsys.readouterr().out.splitlines()
        assert f"timm/{MODEL}" in line
        assert reason in line
        assert f"trying the second address: {other}/{FILE} (" in line
        assert ("sha256" in line) == published
        assert "has not been checked" in line
        assert len(second.requests) == 1
    use(DEAD, other, published)
    assert is_the_network(network)
    assert f"{FILE}: {other}" in capsys.readouterr().out  # without a request


def test_all_that_failed_is_in_one_line(site, use, network):
    with serving(site, Behavior(status=403)) as other:
        use(DEAD, other)
        with pytest.raises(UserError) as caught:
            find_timm_weights(MODEL)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"backbone.weights=imagenet: timm/{MODEL} on {DEAD}: ")
    digits = hashlib.sha256((site / FILE).read_bytes()).hexdigest()
    for part in (
        f"{other}/{FILE} answers 403 Forbidden",
        f"sha256 {digits}",
        str(downloaded_path(f"{other}/{FILE}")),
        "HF_HOME",
        "HF_ENDPOINT=",
        f"DML_MIRROR=<folder with {FILE}>",
        "backbone.weights=<file>",
    ):
        assert part in text
    assert text.count("backbone.weights=none") == 1


def test_a_network_without_a_second_address_names_the_hub_alone(site, use):
    use(DEAD, None)
    with pytest.raises(UserError, match=r"HF_HOME .*HF_ENDPOINT=.*<file>") as caught:
        find_timm_weights(MODEL)
    assert "DML_MIRROR" not in str(caught.value)


def test_a_user_who_forbids_requests_gets_none(site, use, monkeypatch):
    second = Behavior()
    with serving(site, second) as other:
        use(DEAD, other)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids requests"):
            find_timm_weights(MODEL)
    assert second.requests == []


def test_the_mirror_comes_before_the_hub(site, use, network, monkeypatch, capsys):
    hub = Behavior(hub=True)
    with serving(site, hub) as first:
        use(first, DEAD)
        monkeypatch.setenv("DML_MIRROR", str(site))
        assert is_the_network(network)
        assert f"{FILE} of DML_MIRROR" in capsys.readouterr().out
        assert (hub.requests, hub.questions) == ([], [])


def test_a_mirror_that_lacks_the_file_is_left_for_the_hub(site, use, network, monkeypatch, capsys):
    hub = Behavior(hub=True)
    with serving(site, hub) as first:
        use(first, DEAD)
        monkeypatch.setenv("DML_MIRROR", str(site / "timm"))
        assert is_the_network(network)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("; asking the hub")
    assert len(hub.requests) == 1


@pytest.mark.promise(
    "guides/without_internet.md",
    "a file that was placed by hand is another file: it is refused, with both checksums, and stays",
)
def test_a_second_file_that_was_placed_by_hand_is_compared(site, use):
    use(DEAD, DEAD)
    path = downloaded_path(f"{DEAD}/{FILE}")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"another file")
    with pytest.raises(UserError, match=r"sha256 is .*, published is .*another one"):
        find_timm_weights(MODEL)
    assert path.read_bytes() == b"another file"  # it is the user's


def test_the_second_file_of_resnet50_is_that_of_timms_record():
    (name,) = CHECKSUMS
    assert find_record("resnet50.tv_in1k")["url"].endswith(f"/{name}")
    assert name == f"resnet50-{CHECKSUMS[name].digits[:8]}.pth"
    assert find_record("vit_small_patch16_224.dino")["url"].endswith(".pth")


def test_huggingface_hub_stays_silent(site, use, caplog):
    use(DEAD, None)
    with caplog.at_level(logging.WARNING), pytest.raises(UserError):
        find_timm_weights(MODEL)
    assert caplog.records == []
