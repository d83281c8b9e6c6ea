import hashlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest


@pytest.fixture(autouse=True)
def caches(tmp_path_factory, monkeypatch):
    """Empty caches, and a hub where nobody listens: no test depends on the network."""
    home = tmp_path_factory.mktemp("caches")
    monkeypatch.setenv("TORCH_HOME", str(home / "torch"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("dml.core.download.time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    return home


@dataclass
class Server:
    """A web server on this machine: put bytes into `files`, see what was asked for."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    cut_off: bool = False
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    gated: bool = False


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            state.tokens.append(self.headers.get("Authorization"))
            if state.gated and state.tokens[-1] is None:
                self.send_error(401)
            elif self.path in state.redirects:
                target, headers = state.redirects[self.path]
                self.send_response(302)
                for name, value in {"Location": target, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
            elif self.path in state.files:
                content = state.files[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if state.cut_off else content)
            else:
                self.send_error(404)

        def log_message(self, *args):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture
def sha256():
    return lambda content: hashlib.sha256(content).hexdigest()
