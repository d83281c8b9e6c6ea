"""Downloads that continue where they broke off and end with the right checksum or not at all."""

from __future__ import annotations

import hashlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from dml.core.progress import show_transfer

CHUNK = 1 << 20
ATTEMPTS = 4  # without a single new byte in between
TIMEOUT_S = 30
Report = Callable[[int, int | None], None]


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
            ChecksumError: the file has another one.
        """
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, self.algorithm).hexdigest()
        if not found.startswith(self.digits):
            raise ChecksumError(self, found[: len(self.digits)])


class ChecksumError(Exception):
    """A file is damaged, or another one than was published.

    Attributes:
        expected: the published checksum.
        found: the digits of the file itself, as many as were published.
    """

    def __init__(self, expected: Checksum, found: str) -> None:
        self.expected, self.found = expected, found
        super().__init__(f"{expected.algorithm} is {found}, published is {expected.digits}")


class DownloadError(Exception):
    """A file cannot be downloaded; the message names the URL and the reason.

    Attributes:
        final: True where another attempt would fail too, as with a file that does not exist.
    """

    def __init__(self, message: str, final: bool) -> None:
        self.final = final
        super().__init__(message)


def download(
    url: str,
    target: Path,
    checksum: Checksum | None = None,
    *,
    token: str | None = None,
    pause: float = 2.0,
) -> Path:
    """Downloads `url` to `target`, unless it is there; continues after a broken connection.

    The file is `<target>.partial` until it is complete. A later call continues it if a checksum can
    prove that both parts belong together, and starts over otherwise. Only one process at a time may
    download to a target.

    Args:
        url: http, https, ftp or file.
        target: the finished file; its folder is made.
        checksum: of the file; default: the SHA-256 that the Hugging Face hub sends along, if any.
        token: sent as a bearer token to the server of `url`, and to no server that it redirects to.
        pause: seconds before another attempt after the connection broke.

    Returns:
        `target`.

    Raises:
        DownloadError: there is no server, no such file, or the connection keeps breaking.
        ChecksumError: the file has another checksum; a downloaded one is deleted.
        OSError: the file cannot be written.
    """
    if target.is_file():
        if checksum is not None:
            checksum.check(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    transfer = _Transfer(url, target.with_name(target.name + ".partial"), token)
    if checksum is None:
        transfer.partial.unlink(missing_ok=True)
    try:
        with show_transfer(target.name) as report:
            transfer.run(report, pause)
    except DownloadError:
        if checksum is None:
            transfer.partial.unlink(missing_ok=True)
        raise
    checksum = checksum or transfer.sent_checksum
    try:
        if checksum is not None:
            checksum.check(transfer.partial)
    except ChecksumError:
        transfer.partial.unlink()  # continuing it cannot make it right
        raise
    return transfer.partial.replace(target)


class _Transfer(urllib.request.HTTPRedirectHandler):
    """Transfer of the bytes at one URL into a file.

    Attributes:
        partial: the file.
        sent_checksum: the SHA-256 that the Hugging Face hub sends as it redirects to a large file.
    """

    def __init__(self, url: str, partial: Path, token: str | None = None) -> None:
        self.url, self.partial, self.token = url, partial, token
        self.sent_checksum: Checksum | None = None
        self._opener = urllib.request.build_opener(self)
        self._reached = False

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Follows a redirect; keeps its checksum."""
        tag = (headers.get("X-Linked-Etag") or "").strip('"')
        if re.fullmatch(r"[0-9a-f]{64}", tag):
            self.sent_checksum = Checksum("sha256", tag)
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.host == urlsplit(self.url).netloc:
            self._authorize(redirected)  # the hub redirects to the present name of a repository
        return redirected

    def _authorize(self, request: urllib.request.Request) -> None:
        if self.token:  # "unredirected": urllib would pass other headers on to any server
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")

    def run(self, report: Report, pause: float) -> None:
        """Receives the whole file, in as many attempts as bring new bytes."""
        failures = 0
        while True:
            before = self._size()
            try:
                if self._receive(report):
                    return
                reason = "the connection broke off"
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    message = f"{self.url} answers {error.code} {error.reason}"
                    raise DownloadError(message, final=True) from error
                reason = f"the server answers {error.code} {error.reason}"  # it may recover
            except ValueError as error:
                message = f"{self.url}: {error}; expected http://… or https://…"
                raise DownloadError(message, final=True) from error
            except ConnectionError as error:
                reason = str(error)
                failures = failures if self._reached else ATTEMPTS - 1
            failures = 0 if self._size() > before else failures + 1
            if failures == ATTEMPTS:
                megabytes = self._size() / 1e6
                message = f"{self.url}: {reason} ({megabytes:.1f} MB are here)"
                raise DownloadError(message, final=False)
            time.sleep(pause)

    def _receive(self, report: Report) -> bool:
        """Fetches what is missing; True if all of it has arrived."""
        start = self._size()
        request = urllib.request.Request(self.url, headers={"User-Agent": "dml-benchmark"})
        self._authorize(request)
        if start:
            request.add_header("Range", f"bytes={start}-")
        try:
            with _network_errors():
                response = self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            self._reached = True
            if error.code != 416:  # asked for bytes beyond the end
                raise
            whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            if whole and int(whole[1]) == start:
                return True
            self.partial.unlink()  # longer than the file: it belongs to another one
            return False
        self._reached = True
        with response:
            if start and not _continues_at(response, start):
                start = 0  # the server sends the whole file
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else None
            done = start
            with open(self.partial, "ab" if start else "wb") as file:
                report(done, total)
                while chunk := _read(response):
                    done += file.write(chunk)
                    report(done, total)
        return total is None or done == total

    def _size(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0


@contextmanager
def _network_errors() -> Iterator[None]:
    """Raises a ConnectionError for errors of the network, unlike those of the disk."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise ConnectionError(reason or type(error).__name__) from error


def _read(response: IO[bytes]) -> bytes:
    with _network_errors():
        return response.read(CHUNK)


def _continues_at(response: object, start: int) -> bool:
    headers = getattr(response, "headers", {})
    given = re.match(r"bytes (\d+)-", headers.get("Content-Range") or "")
    return getattr(response, "status", None) == 206 and given is not None and int(given[1]) == start
