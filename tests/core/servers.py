"""A local HTTP server that serves one folder and misbehaves on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Behavior:
    """How the server treats its clients.

    Attributes:
        break_after: bytes after which each of the first `breaks` answers ends.
        breaks: how many answers are cut off.
        ranges: whether it can continue in the middle of a file.
        length: whether it sends Content-Length.
        endless: whether it sends the file again and again.
        requests: the Range header of every request so far.
    """

    break_after: int | None = None
    breaks: int = 0
    ranges: bool = True
    length: bool = True
    endless: bool = False
    requests: list[str | None] = field(default_factory=list)


@contextmanager
def serving(folder: Path, behavior: Behavior) -> Iterator[str]:
    """Yields the address of `folder`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            behavior.requests.append(asked)
            path = folder / self.path.lstrip("/").partition("?")[0]
            if not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            if not behavior.ranges:
                start = 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if behavior.length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            answer = content[start:]
            if behavior.break_after is not None and len(behavior.requests) <= behavior.breaks:
                answer = answer[: behavior.break_after]
            self.wfile.write(answer)
            with suppress(ConnectionError):  # the client has had enough
                while behavior.endless:
                    self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
