"""Servers that answer, refuse, are silent or unknown: no run needs them, and none is waited for."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dml.cli.machine import network
from dml.cli.machine.network import try_dataset, try_hub


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(int(self.path.strip("/") or 200))
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("DML_MIRROR", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("status", [200, 403, 404, 503])
def test_any_answer_counts(server, status):
    outcome = try_dataset(f"{server}/{status}")
    assert outcome.state == "ok"
    assert outcome.result == "127.0.0.1 answers"


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/x", "http://no-such-host.invalid/x", "http://[::1", "nothing"]
)
def test_a_server_that_does_not_answer_is_a_note(address):
    outcome = try_dataset(address)
    assert outcome.state == "note"
    assert "without_internet.md" in outcome.remedy


def test_a_proxy_that_asks_for_a_password(server):
    assert try_dataset(f"{server}/407").state == "note"


@pytest.mark.promise(
    "guides/check_a_machine.md",
    "there is no internet: two notes say so within four seconds, and the exit status stays 0",
)
def test_a_silent_server_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(network, "SECONDS", 0.1)
    monkeypatch.setattr(network, "_send", lambda address, answer: time.sleep(5))
    began = time.monotonic()
    outcome = try_dataset("http://example.invalid/x")
    assert time.monotonic() - began < 4
    assert outcome.state == "note"
    assert outcome.result == "example.invalid: silent for 0 s"


def test_the_hub_is_asked_at_its_mirror(server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server)
    monkeypatch.setattr(network, "is_offline", lambda: False)
    assert try_hub().result == "127.0.0.1 answers"


def test_the_hub_is_not_asked_where_the_user_forbids_it(monkeypatch):
    monkeypatch.setattr(network, "is_offline", lambda: True)
    monkeypatch.setattr(network, "_ask", lambda address: pytest.fail("asked"))
    outcome = try_hub()
    assert outcome.state == "ok"
    assert "HF_HUB_OFFLINE" in outcome.result


def test_mirrors(server, tmp_path, monkeypatch):
    monkeypatch.setenv("DML_MIRROR", server)
    assert try_dataset("http://127.0.0.1:1/x").state == "ok"
    monkeypatch.setenv("DML_MIRROR", str(tmp_path))
    assert try_dataset("http://127.0.0.1:1/x").state == "ok"
    monkeypatch.setenv("DML_MIRROR", str(tmp_path / "missing"))
    outcome = try_dataset("http://127.0.0.1:1/x")
    assert outcome.state == "FAILED"
    assert "DML_MIRROR" in outcome.remedy


def test_passwords_in_addresses_are_not_shown(monkeypatch):
    monkeypatch.setenv("DML_MIRROR", "http://user:secret@127.0.0.1:1/x")
    assert "secret" not in str(try_dataset(""))
