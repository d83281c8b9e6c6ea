"""Downloads that resume after an interruption and verify the published checksum."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from dml.core.progress import show_task

CHUNK = 1 << 20
ATTEMPTS = 4  # in a row that receive no byte
TIMEOUT_S = 30
# Errors of the connection, as opposed to the disk.
NETWORK_ERRORS = (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


@dataclass(frozen=True)
class Checksum:
    """The published checksum of a file.

    Attributes:
        algorithm: `md5` or `sha256`.
        digits: the hexadecimal digits, or at least the first of them.
    """

    algorithm: str
    digits: str

    def check(self, path: Path) -> None:
        """Compares a file with the checksum.

        Raises:
            ChecksumError: the checksum of the file differs.
        """
        with open(path, "rb") as file:
            digits = hashlib.file_digest(file, self.algorithm).hexdigest()[: len(self.digits)]
        if digits != self.digits:
            raise ChecksumError(f"{self.algorithm} is {digits}, published is {self.digits}")


class ChecksumError(Exception):
    """A file is damaged, or differs from the published file."""


class DownloadError(Exception):
    """A file cannot be downloaded; the message names the URL and the reason."""


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
        DownloadError: there is no server, no such file, or the connection keeps breaking.
        ChecksumError: the checksum of the file differs; a downloaded file is deleted.
        OSError: the file cannot be written.
    """
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        mode = "wb" if checksum is None else "ab"
        try:
            with open(partial, mode) as file, show_task(f"downloading {target.name}") as update:
                _receive_all(url, file, update, pause)
        except BaseException:
            if partial.is_file() and not partial.stat().st_size:  # nothing to continue
                partial.unlink()
            raise
        if checksum is not None:
            try:
                checksum.check(partial)
            except ChecksumError:
                partial.unlink()  # resuming cannot repair it
                raise
        partial.replace(target)
    elif checksum is not None:
        checksum.check(target)
    return target


def _receive_all(url: str, file: IO[bytes], update: Callable[..., None], pause: float) -> None:
    """Receives the whole file; gives up after `ATTEMPTS` attempts in a row without a new byte."""
    failures = 0
    while failures < ATTEMPTS:
        start, reason = file.tell(), "the connection broke off"
        try:
            if _receive(url, file, update):
                return
        except ValueError as error:
            raise DownloadError(f"{url}: {error}; expected http://… or https://…") from error
        except NETWORK_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError):
                if error.code == 416:  # asked for bytes beyond the end: the checksum decides
                    return
                if error.code < 500:  # server errors may be temporary
                    raise DownloadError(f"{url} answers {error.code} {error.reason}") from error
            reason = " ".join(str(getattr(error, "reason", error)).split())
        failures = 0 if file.tell() > start else failures + 1
        time.sleep(pause)
    raise DownloadError(f"{url}: {reason} ({file.tell() / 1e6:.1f} MB received)")


def _receive(url: str, file: IO[bytes], update: Callable[..., None]) -> bool:
    """Receives the missing bytes; returns True if the file is complete."""
    start = file.seek(0, 2)
    headers = {"User-Agent": "dml-benchmark"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        range_sent = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
        if start and not (range_sent and int(range_sent[1]) == start):  # the whole file is sent
            start = file.truncate(0)
            file.seek(0)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        while chunk := response.read(CHUNK):
            file.write(chunk)
            update(completed=file.tell(), total=total)
    return total is None or file.tell() == total
