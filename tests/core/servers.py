"""A local HTTP server that serves one folder, plays the Hugging Face hub, and misbehaves on demand.

As a hub it has a folder for each model, `<user>/<name>`, with its files.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISION = re.compile("/resolve/[^/]+/")  # in the addresses of the hub
CERTIFICATE = Path(__file__).with_name("self_signed.pem")  # of no authority


@dataclass
class Behavior:
    """How the server treats its clients.

    Attributes:
        break_after: bytes after which each of the first `breaks` answers ends.
        breaks: how many answers are cut off.
        ranges: whether it can continue in the middle of a file.
        length: whether it sends Content-Length.
        endless: whether it sends the file again and again.
        status: of every answer, instead of the file.
        content: of every answer, instead of the file.
        silent_after: bytes after which it sends nothing more, and keeps the connection.
        encrypted: whether it speaks https, with a certificate that nobody trusts.
        redirect: address to which every request for content is sent.
        hub: whether it answers as the hub does.
        requests: the Range header of every request for content so far.
        questions: the path of every question to the hub so far.
        authorized: the Authorization header of every request for content that has one.
    """

    break_after: int | None = None
    breaks: int = 0
    ranges: bool = True
    length: bool = True
    endless: bool = False
    status: int | None = None
    content: bytes | None = None
    silent_after: int | None = None
    encrypted: bool = False
    redirect: str = ""
    hub: bool = False
    requests: list[str | None] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)


def failures(content: bytes) -> dict[str, tuple[Behavior, str]]:
    """Returns how a server fails to deliver a file, and what a message says then.

    Args:
        content: of the file that is expected, of more than 1,000 bytes; `SILENT_SECONDS` is 1.
    """
    page = b"<!DOCTYPE html><html><head><title>Quota exceeded &amp; more</title></head></html>"
    return {
        "silent": (Behavior(silent_after=0), "silent for 1 s"),
        "silent in the middle": (Behavior(silent_after=1000), "silent for 1 s"),
        "not found": (Behavior(status=404), "answers 404 Not Found"),
        "other content": (Behavior(content=b"x" * len(content)), "(published is|is of another)"),
        "half of it": (Behavior(content=content[:1000]), "announces 1,000 bytes, published are"),
        "a web page": (Behavior(content=page), r"a web page \(Quota exceeded & more\), not the"),
        "a certificate": (Behavior(encrypted=True), "CERTIFICATE_VERIFY_FAILED"),
    }


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    behavior: Behavior
    is_over: threading.Event

    def do_GET(self) -> None:
        behavior, asked = self.behavior, self.headers.get("Range")
        if behavior.hub and self.path.startswith("/api/"):  # huggingface_hub's own matters
            self.send_error(404)
            return
        behavior.requests.append(asked)
        if allowed := self.headers.get("Authorization"):
            behavior.authorized.append(allowed)
        if behavior.redirect:
            self.send_response(302)
            self.send_header("Location", behavior.redirect)
            self.end_headers()
            return
        path = self._file()
        if behavior.status is not None or not path.is_file():
            self.send_error(behavior.status or 404)
            return
        if behavior.silent_after == 0:
            self.is_over.wait()
            return
        content = path.read_bytes() if behavior.content is None else behavior.content
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if not behavior.ranges:
            start = 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self._send_headers(start, len(content))
        self._send(content, content[start:])

    def do_HEAD(self) -> None:
        behavior, path = self.behavior, self._file()
        behavior.questions.append(self.path)
        if behavior.silent_after == 0:
            self.is_over.wait()
            return
        if behavior.status is not None or not path.parent.is_dir():
            self.send_error(behavior.status or 404)
            return
        self.send_response(200 if path.is_file() else 404)
        if behavior.hub:
            self.send_header("X-Repo-Commit", COMMIT)
            self._describe_file(path)
        self.send_header("Connection", "close")
        self.end_headers()

    def _describe_file(self, path: Path) -> None:
        if not path.is_file():
            self.send_header("X-Error-Code", "EntryNotFound")
            return
        content = path.read_bytes()
        is_large = path.suffix != ".json"
        digits = hashlib.sha256(content).hexdigest()
        self.send_header("ETag", f'"{digits if is_large else digits[:40]}"')
        self.send_header("Content-Length", str(len(content)))

    def _file(self) -> Path:
        path = self.path.lstrip("/").partition("?")[0]
        return self.folder / (REVISION.sub("/", path) if self.behavior.hub else path)

    def _send_headers(self, start: int, size: int) -> None:
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if self.behavior.length:
            self.send_header("Content-Length", str(size - start))
        self.end_headers()

    def _send(self, content: bytes, answer: bytes) -> None:
        behavior = self.behavior
        if behavior.silent_after is not None:
            self.wfile.write(answer[: behavior.silent_after])
            self.is_over.wait()
            return
        if behavior.break_after is not None and len(behavior.requests) <= behavior.breaks:
            answer = answer[: behavior.break_after]
        self.wfile.write(answer)
        with suppress(ConnectionError):  # the client has had enough
            while behavior.endless:
                self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(folder: Path, behavior: Behavior) -> Iterator[str]:
    """Yields the address of `folder`."""
    is_over = threading.Event()
    members = {"folder": folder, "behavior": behavior, "is_over": is_over}
    handler = type("Handler", (_Handler,), members)
    server, scheme = ThreadingHTTPServer(("127.0.0.1", 0), handler), "http"
    if behavior.encrypted:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}"
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()
