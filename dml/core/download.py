"""Downloads that resume after an interruption and verify the published checksum."""

from __future__ import annotations

import hashlib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import IO

from dml.core.errors import UserError
from dml.core.progress import log_lines, show_task

CHUNK = 1 << 20
ATTEMPTS = 4  # in a row that receive no byte
TIMEOUT_S = 30
MOST_BYTES = 32 << 30  # of a file whose size is not published; the largest known one has 3 GB
ADVICE = "run the same command again, or give another URL (--url) or a local file (--archive)"
# Errors of the connection, as opposed to the disk.
NETWORK_ERRORS = (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


@dataclass(frozen=True)
class Checksum:
    """The published checksum of a file.

    Attributes:
        algorithm: `md5` or `sha256`.
        digits: the hexadecimal digits, or at least the first of them.
        size: bytes of the file; None: not published.
    """

    algorithm: str
    digits: str
    size: int | None = None

    def check(self, path: Path) -> None:
        """Compares a file with the checksum.

        Raises:
            ChecksumError: the checksum of the file differs.
        """
        with open(path, "rb") as file:
            digits = hashlib.file_digest(file, self.algorithm).hexdigest()[: len(self.digits)]
        if digits != self.digits:
            raise ChecksumError(
                f"{path}: {self.algorithm} is {digits}, published is {self.digits}: the file is "
                f"damaged or another one; download it again, from another source if necessary"
            )


class ChecksumError(UserError):
    """A file is damaged, or differs from the published file."""


def download(
    url: str, target: Path, checksum: Checksum | None = None, *, pause: float = 2.0
) -> Path:
    """Downloads `url` to `target` unless that file exists; resumes after a broken connection.

    The file is `<target>.partial` until it is complete. A later call resumes it if a checksum is
    given, which verifies the result, and starts over otherwise. Only one process at a time may
    download to a target.

    Args:
        url: http, https, ftp or file.
        target: the finished file; its folder is created.
        checksum: the published checksum of the file.
        pause: seconds before another attempt after the connection broke.

    Returns:
        `target`.

    Raises:
        UserError: there is no server, no such file, the connection keeps breaking, or the server
            sends more than the published size, or than `MOST_BYTES`.
        ChecksumError: the checksum of the file differs; a downloaded file is deleted.
        OSError: the file cannot be written.
    """
    if target.is_file():
        if checksum is not None:
            checksum.check(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    mode = "wb" if checksum is None else "ab"
    title = f"downloading {target.name}"
    with open(partial, mode) as file, show_task(title) as update, log_lines() as log_line:

        def show(completed: int, total: int | None) -> None:
            update(completed=completed, total=total)
            log_line(lambda: _describe_position(title, completed, total))

        _receive_all(url, file, show, pause, None if checksum is None else checksum.size)
    try:
        if checksum is not None:
            checksum.check(partial)
    except ChecksumError:
        partial.unlink()  # resuming cannot repair it
        raise
    return partial.replace(target)


def _describe_position(title: str, completed: int, total: int | None) -> str:
    received = f"{title}: {completed / 1e6:,.0f}"
    return f"{received} of {total / 1e6:,.0f} MB" if total else f"{received} MB"


def _receive_all(
    url: str, file: IO[bytes], update: Callable[..., None], pause: float, size: int | None
) -> None:
    """Receives the whole file; gives up after `ATTEMPTS` attempts in a row without a new byte."""
    failures = 0
    while failures < ATTEMPTS:
        start, reason = file.tell(), "the connection broke off"
        try:
            if _receive(url, file, update, size):
                return
        except ValueError as error:
            raise UserError(f"{url}: {error}; expected http://… or https://…") from error
        except NETWORK_ERRORS as error:
            code = getattr(error, "code", 500)  # of an answer; server errors may be temporary
            if code == 416:  # asked for bytes beyond the end: the checksum decides
                return
            reason = " ".join(str(getattr(error, "reason", error)).split())
            if code < 500:
                raise UserError(f"{url} answers {code} {reason}; {ADVICE}") from error
        failures = 0 if file.tell() > start else failures + 1
        time.sleep(pause)
    raise UserError(f"{url}: {reason} ({file.tell() / 1e6:.1f} MB received); {ADVICE}")


def _receive(url: str, file: IO[bytes], update: Callable[..., None], size: int | None) -> bool:
    """Receives the missing bytes; returns True if the file is complete.

    Raises:
        UserError: the server sends more than `size` bytes, or than `MOST_BYTES`; nothing of the
            file is kept.
    """
    start = file.seek(0, 2)
    headers = {"User-Agent": "dml-benchmark"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:  # the whole file is sent
            start = file.truncate(0)
            file.seek(0)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else size
        _check_size(url, file, total or 0, size)
        while chunk := response.read(CHUNK):
            _check_size(url, file, file.tell() + len(chunk), size)
            file.write(chunk)
            update(completed=file.tell(), total=total)
    return total is None or file.tell() == total


def _check_size(url: str, file: IO[bytes], received: int, size: int | None) -> None:
    limit = MOST_BYTES if size is None else size
    if received <= limit:
        return
    file.truncate(0)  # another file: continuing it is no use
    published = "" if size is None else "the published "
    raise UserError(f"{url}: sends more than {published}{limit:,} bytes: another file; {ADVICE}")
