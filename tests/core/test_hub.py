import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dml.core.download import without_requests
from dml.core.hub import HubError, find_cached, find_hub_file, measure_hub_file
from tests.core.servers import Behavior, failures, serving
from tests.waiting import wait_until

CONTENT = os.urandom(300_000)
DIGITS = hashlib.sha256(CONTENT).hexdigest()
NAMES = ["model.safetensors", "pytorch_model.bin"]
DEAD = "http://127.0.0.1:9"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The models of the hub: one has both names, one the older alone."""
    for model, name in (("new", NAMES[0]), ("old", NAMES[1])):
        folder = tmp_path / "models" / "timm" / model
        folder.mkdir(parents=True)
        (folder / name).write_bytes(CONTENT)
        (folder / "config.json").write_text('{"a": 1}')
    return tmp_path / "models"


@pytest.fixture
def use_hub(tmp_path, monkeypatch):
    """Makes an address that of the hub, with an empty cache."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("dml.core.hub.ANSWER_SECONDS", 1.0)
    monkeypatch.setattr("dml.core.download.SILENT_SECONDS", 1)

    def use(address: str) -> None:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)

    return use


@pytest.mark.parametrize(("of_user", "expected"), [(None, "True"), ("0", "False"), ("1", "True")])
def test_the_hub_is_told_nothing_unless_the_user_says_so(of_user, expected, monkeypatch):
    """By itself, huggingface_hub asks once more to describe the process."""
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    if of_user is not None:
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", of_user)
    code = (
        "import dml.core.hub; from huggingface_hub import constants; "
        "print(constants.HF_HUB_DISABLE_TELEMETRY)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.parametrize("model", ["timm/new", "timm/old", "timm/new@v1"])
def test_a_file_is_asked_for_once_and_then_never_again(models, use_hub, model):
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        path = find_hub_file(model, NAMES)
        assert path.read_bytes() == CONTENT
        assert len(behavior.requests) == 1
        asked = len(behavior.questions)
        assert find_hub_file(model, NAMES) == find_cached(model, NAMES) == path
        assert (len(behavior.requests), len(behavior.questions)) == (1, asked)
    assert find_hub_file(model, NAMES) == path


def test_other_programs_find_the_file_where_the_hub_keeps_it(models, use_hub, tmp_path):
    from huggingface_hub import hf_hub_download

    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        found = find_hub_file("timm/new", NAMES)
        config = find_hub_file("timm/new", ["config.json"])
    options = {"cache_dir": tmp_path / "cache", "local_files_only": True}
    assert hf_hub_download("timm/new", NAMES[0], **options) == str(found)
    assert config.read_text() == '{"a": 1}'
    assert config.parent == found.parent


FAILURES = {
    "silent": (Behavior(hub=True, silent_after=0), "silent for 1 s"),
    "not found": (Behavior(hub=True, status=404), "answers 404"),
    "overloaded": (Behavior(hub=True, status=503), "answers 503"),
    "forbidden": (Behavior(hub=True, status=403), "answers 403"),
    "a page": (Behavior(), "no answer of a hub, but of a proxy"),
    "half silent": (
        Behavior(hub=True, silent_after=1000),
        "silent for 1 s; the same command",
    ),
    "another file": (Behavior(hub=True, content=b"x" * len(CONTENT)), "sha256 is .*, published"),
    "half a file": (Behavior(hub=True, content=CONTENT[:99]), "announces 99 bytes, published"),
    "a certificate": (Behavior(hub=True, encrypted=True), "CERTIFICATE_VERIFY_FAILED"),
}


@pytest.mark.parametrize("failure", [*FAILURES, "dead"])
def test_a_hub_that_fails_is_left_in_time_with_its_reason(models, use_hub, capfd, failure):
    behavior, reason = FAILURES.get(failure, (Behavior(), "Connection refused"))
    started = time.monotonic()
    if failure == "a page":  # of the address itself, without what a hub adds
        folder = models / "timm" / "new" / "resolve" / "main"
        folder.mkdir(parents=True)
        (folder / NAMES[0]).write_text("<html>Log in</html>")
    with serving(models, behavior) as address:
        use_hub(DEAD if failure == "dead" else address)
        with pytest.raises(HubError, match=reason) as caught:
            find_hub_file("timm/new", NAMES)
    assert time.monotonic() - started < 8
    assert "timm/new" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("failure", ["broken", "half of it", "a web page"])
def test_a_command_is_said_to_continue_only_where_something_was_kept(
    models, use_hub, monkeypatch, failure
):
    monkeypatch.setattr("dml.core.download.ATTEMPTS", 1)
    known = {**failures(CONTENT), "broken": (Behavior(break_after=1000, breaks=9), "broke off")}
    behavior, reason = known[failure]
    behavior.hub = True
    with serving(models, behavior) as address:
        use_hub(address)
        with pytest.raises(HubError, match=reason) as caught:
            find_hub_file("timm/new", NAMES)
    kept = failure == "broken"
    assert ("the same command continues" in str(caught.value)) == kept
    assert ("a browser shows what the address sends" in str(caught.value)) != kept
    assert "same command" not in caught.value.reason


def test_what_the_hub_does_not_have_is_named(models, use_hub):
    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        with pytest.raises(HubError, match=r"timm/new on http.* has no a\.bin or b\.bin"):
            find_hub_file("timm/new", ["a.bin", "b.bin"])


def test_a_user_who_forbids_requests_gets_what_is_there(models, use_hub, monkeypatch):
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(HubError, match="HF_HUB_OFFLINE forbids requests"):
            find_hub_file("timm/new", NAMES)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        with without_requests(), pytest.raises(HubError, match=r"is not in .*cache"):
            find_hub_file("timm/new", NAMES)
        assert (behavior.requests, behavior.questions) == ([], [])
        path = find_hub_file("timm/new", NAMES)
        with without_requests():
            assert find_hub_file("timm/new", NAMES) == path


def test_the_size_is_known_before_and_after_the_download(models, use_hub):
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        assert measure_hub_file("timm/old", NAMES) == len(CONTENT)
        assert measure_hub_file("timm/new", ["nothing"]) is None
        assert behavior.requests == []
        find_hub_file("timm/old", NAMES)
    use_hub(DEAD)
    assert measure_hub_file("timm/old", NAMES) == len(CONTENT)
    assert measure_hub_file("timm/new", NAMES) is None


def test_the_token_is_for_the_hub_alone(models, use_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    behavior, storage = Behavior(hub=True), Behavior()
    with serving(models, storage) as elsewhere, serving(models, behavior) as address:
        behavior.redirect = f"{elsewhere}/timm/new/{NAMES[0]}"
        use_hub(address)
        assert find_hub_file("timm/new", NAMES).read_bytes() == CONTENT
    assert behavior.authorized == ["Bearer hf_secret"]
    assert (len(storage.requests), storage.authorized) == (1, [])


def wait_for_bytes(folder: Path) -> None:
    wait_until(lambda: any(path.stat().st_size for path in folder.rglob("*.partial")))


def start(address: str, home: Path) -> subprocess.Popen[str]:
    """Starts a process that prints the path of a file of the hub."""
    script = (
        "from dml.core.hub import find_hub_file\n"
        "from dml.core.signals import raise_on_signals\n"
        f"with raise_on_signals(): print(find_hub_file('timm/new', {NAMES}))"
    )
    options = {"HF_HOME": str(home), "no_proxy": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
    options |= {"HF_ENDPOINT": address, "HF_HUB_ETAG_TIMEOUT": "100"}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | options,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_silent_hub(models, tmp_path, stop):
    behavior = Behavior(hub=True, silent_after=0)
    with serving(models, behavior) as address:
        process = start(address, tmp_path)
        wait_until(lambda: behavior.questions)
        process.send_signal(stop)
        started = time.monotonic()
        assert process.wait(timeout=20) != 0
        assert time.monotonic() - started < 2


@pytest.mark.promise(
    "guides/without_internet.md",
    "a download of weights is interrupted: Ctrl-C and SIGTERM end it within two seconds, and the "
    "same command continues it",
)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_download_and_the_same_command_continues(models, tmp_path, stop):
    large = os.urandom(3 << 20)
    (models / "timm" / "new" / NAMES[0]).write_bytes(large)
    with serving(models, Behavior(hub=True, silent_after=2 << 20)) as address:
        process = start(address, tmp_path)
        wait_for_bytes(tmp_path)
        process.send_signal(stop)
        started = time.monotonic()
        assert process.wait(timeout=20) != 0
        assert time.monotonic() - started < 2
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        process = start(address, tmp_path)
        path, _ = process.communicate(timeout=60)
    assert Path(path.strip()).read_bytes() == large
    (asked,) = behavior.requests
    assert asked is not None
    assert int(asked.removeprefix("bytes=").rstrip("-")) >= 1 << 20
