"""Downloads: from the first of several addresses that has the file, which its checksum decides.

A silent address is tried once; a broken transfer is continued three times; after anything else the
next address is tried at once. Interrupted downloads resume.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import IO

from dml.core.errors import RunStopped, UserError
from dml.core.plain_text import print_plain, show_line
from dml.core.progress import log_lines, show_task

CHUNK = 1 << 20
ATTEMPTS = 4  # at an address: a broken transfer is continued three times
SILENT_SECONDS = 30  # without an answer or a byte
MIRROR = "DML_MIRROR"  # environment variable: a folder or address that holds the files by name
WEB_PAGE = re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE)
TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
MOST_BYTES = 160 << 30  # of a file whose size is not published; the largest one has 120 GB
ADVICE = "run the same command again, or give another URL (--url) or a local file (--archive)"
_may_request = ContextVar("may_request", default=True)
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
# Errors of the connection, as opposed to the disk.
BROKEN = (HTTPException, ConnectionError, ssl.SSLError)  # of a transfer that had begun
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

    def describe(self) -> str:
        """Returns `md5 97ece…, 1,150,585,339 bytes`."""
        size = "" if self.size is None else f", {self.size:,} bytes"
        return f"{self.algorithm} {self.digits}{size}"

    def check(self, path: Path, source: str = "") -> None:
        """Compares a file with the checksum.

        Args:
            path: of the file.
            source: address of the file, for the message; empty: the path.

        Raises:
            ChecksumError: the checksum of the file differs.
        """
        with open(path, "rb") as file:
            digits = hashlib.file_digest(file, self.algorithm).hexdigest()[: len(self.digits)]
        if digits != self.digits:
            raise ChecksumError(
                f"{source or path}: {self.algorithm} is {digits}, published is {self.digits}: the "
                f"file is damaged or another one"
            )


class ChecksumError(UserError):
    """A file is damaged, or differs from the published file."""


@contextmanager
def without_requests() -> Iterator[None]:
    """While the context is open, a file that would have to be downloaded is a UserError."""
    token = _may_request.set(False)
    try:
        yield
    finally:
        _may_request.reset(token)


def requests_allowed() -> bool:
    """Returns whether files may be downloaded (see `without_requests`)."""
    return _may_request.get()


def with_mirror(name: str, addresses: Sequence[str]) -> list[str]:
    """Returns the addresses of a file, after that of `DML_MIRROR` if this is set.

    Args:
        name: of the file, as in the mirror.
        addresses: public ones.
    """
    base = os.environ.get(MIRROR, "")
    if not base:
        return list(addresses)
    if "://" not in base:
        base = Path(base).expanduser().absolute().as_uri()
    return [f"{base.rstrip('/')}/{name}", *addresses]


def download(
    addresses: str | Sequence[str],
    target: Path,
    checksum: Checksum | None = None,
    *,
    pause: float = 2.0,
    advice: str = ADVICE,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Path:
    """Downloads `target`, unless that file exists, from the first address that has it.

    The file is `<target>.partial` until it is complete. A later call resumes it if a checksum is
    given, which verifies the result, and starts over otherwise. Only one process at a time may
    download to a target. A line says why an address is left for the next.

    Args:
        addresses: http, https, ftp or file; one, or several in the order in which they are tried.
        target: the finished file; its folder is created.
        checksum: the published checksum of the file.
        pause: seconds before a broken transfer is continued.
        advice: what to do if no address has the file, for the message; empty: nothing to add.
        headers: sent to an address, and not to where it redirects.

    Returns:
        `target`.

    Raises:
        UserError: no address has the file. The message names each with its reason.
        ChecksumError: the checksum of the file differs; a downloaded file is deleted.
        OSError: the file cannot be written.
    """
    if target.is_file():
        if checksum is not None:
            checksum.check(target)
        return target
    if not requests_allowed():
        raise UserError(f"{target} is not there; {advice}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(addresses, str):
        addresses = [addresses]
    reasons: list[str] = []
    for address in addresses:
        try:
            return _download_from(address, target, checksum, pause, headers)
        except ChecksumError as error:
            if len(addresses) == 1:
                raise
            reasons.append(str(error))
        except UserError as error:
            reasons.append(str(error))
        if len(reasons) < len(addresses):
            print_plain(f"{reasons[-1]}; trying the next address", flush=True)
    raise UserError(_describe_failures(target.name, checksum, reasons, advice))


def _describe_failures(
    name: str, checksum: Checksum | None, reasons: Sequence[str], advice: str
) -> str:
    """Returns the message of a file that no address has; a single address needs one line."""
    if len(reasons) == 1:
        return "; ".join(filter(None, [reasons[0], advice]))
    published = "" if checksum is None else f" ({checksum.describe()})"
    lines = "".join(f"\n  {reason}" for reason in reasons)
    return f"no address has {name}{published}:{lines}\n{advice}"


def partial_of(target: Path) -> Path:
    """Returns the file that keeps what was received of a file that is not complete."""
    return target.with_name(target.name + ".partial")


def _download_from(
    address: str,
    target: Path,
    checksum: Checksum | None,
    pause: float,
    headers: Mapping[str, str],
) -> Path:
    """Downloads a file from one address.

    Raises:
        UserError: the address does not have the file.
        ChecksumError: it has another file, of which nothing is kept.
    """
    partial = partial_of(target)
    resumes = checksum is not None and partial.is_file() and partial.stat().st_size > 0
    _receive_partial(address, target, checksum, pause, headers)
    if checksum is None:
        return partial.replace(target)
    try:
        checksum.check(partial, address)
    except ChecksumError:
        partial.unlink()  # resuming cannot repair it
        if resumes:  # what was there before may be of another file
            return _download_from(address, target, checksum, pause, headers)
        raise
    return partial.replace(target)


def _receive_partial(
    address: str,
    target: Path,
    checksum: Checksum | None,
    pause: float,
    headers: Mapping[str, str],
) -> None:
    """Receives a file into `partial_of(target)`; continues one that has a checksum."""
    partial = partial_of(target)
    title = f"downloading {target.name}"
    mode = "wb" if checksum is None else "ab"
    with open(partial, mode) as file, show_task(title) as update, log_lines() as log_line:

        def show(completed: int, total: int | None) -> None:
            update(completed=completed, total=total)
            log_line(lambda: _describe_position(title, completed, total))

        size = None if checksum is None else checksum.size
        try:
            _receive_all(_Transfer(address, file, show, size, headers), pause)
        except (KeyboardInterrupt, RunStopped):
            kept = f"note: {partial} keeps {file.tell() / 1e6:.1f} MB"
            if checksum is not None:
                kept += ", and the same command continues the download"
            print_plain(kept, file=sys.stderr, flush=True)
            raise
        except UserError:
            if not file.tell():  # nothing to continue
                partial.unlink()
            raise


def _describe_position(title: str, completed: int, total: int | None) -> str:
    received = f"{title}: {completed / 1e6:,.0f}"
    return f"{received} of {total / 1e6:,.0f} MB" if total else f"{received} MB"


@dataclass(frozen=True)
class _Transfer:
    """A file that is received from an address.

    Attributes:
        address: of the file.
        file: opened for writing, at whose end the transfer continues.
        show: called with the bytes received, and their total if it is known.
        size: published size in bytes; None: not published.
        headers: sent to the address, and not to where it redirects.
    """

    address: str
    file: IO[bytes]
    show: Callable[[int, int | None], None]
    size: int | None
    headers: Mapping[str, str]

    def receive(self) -> bool:
        """Receives the missing bytes; returns True if the file is complete.

        Raises:
            UserError: the answer is not the file; nothing of it is kept.
        """
        start = self.file.seek(0, 2)
        headers = {"User-Agent": "dml-benchmark"}
        if start:
            headers["Range"] = f"bytes={start}-"
        request = urllib.request.Request(self.address, headers=headers)
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)
        with urllib.request.urlopen(request, timeout=SILENT_SECONDS) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:  # the whole file is sent
                start = self.file.truncate(0)
                self.file.seek(0)
            length = response.headers.get("Content-Length")
            announced = start + int(length) if length else None
            chunk = response.read(CHUNK)
            if start == 0:
                self._refuse_web_page(chunk)
            self._check_announced(announced)
            total = announced or self.size
            while chunk:
                self._check_size(self.file.tell() + len(chunk))
                self.file.write(chunk)
                self.show(self.file.tell(), total)
                chunk = response.read(CHUNK)
        return total is None or self.file.tell() == total

    def _refuse_web_page(self, chunk: bytes) -> None:
        if not WEB_PAGE.match(chunk):
            return
        title = TITLE.search(chunk)
        text = html.unescape(title[1].decode("utf-8", "replace")) if title else ""
        name = f" ({show_line(' '.join(text.split())[:80])})" if text.strip() else ""
        raise UserError(f"{self.address}: a web page{name}, not the file")

    def _check_announced(self, announced: int | None) -> None:
        """Raises UserError if the server announces another size than the published one."""
        if announced is None or self.size is None or announced >= self.size:
            self._check_size(announced or 0)
            return
        self.file.truncate(0)
        raise UserError(
            f"{self.address}: announces {announced:,} bytes, published are {self.size:,}: another "
            f"file"
        )

    def _check_size(self, received: int) -> None:
        limit = MOST_BYTES if self.size is None else self.size
        if received <= limit:
            return
        self.file.truncate(0)  # another file: continuing it is no use
        published = "" if self.size is None else "the published "
        raise UserError(f"{self.address}: sends more than {published}{limit:,} bytes: another file")


def _receive_all(transfer: _Transfer, pause: float) -> None:
    """Receives the whole file.

    Raises:
        UserError: the address is silent, does not have the file, or breaks off again and again.
    """
    address, file = transfer.address, transfer.file
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause)
        reason = "the connection broke off"
        try:
            if transfer.receive():
                return
        except ValueError as error:
            raise UserError(f"{address}: {error}; expected http://… or https://…") from error
        except NETWORK_ERRORS as error:
            code = getattr(error, "code", None)  # of an answer
            if code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # asked for bytes beyond the end: the checksum decides
            if code is not None:
                raise UserError(f"{address} answers {code} {_describe(error)}") from error
            if _is_silent(error):
                raise UserError(f"{address}: silent for {SILENT_SECONDS} s") from error
            if not isinstance(error, BROKEN):
                raise UserError(f"{address}: {_describe(error)}") from error
            reason = _describe(error)
    raise UserError(f"{address}: {reason} ({file.tell() / 1e6:.1f} MB received)")


def _is_silent(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or isinstance(
        getattr(error, "reason", None), TimeoutError
    )


def _describe(error: Exception) -> str:
    if isinstance(getattr(error, "reason", None), socket.gaierror):
        return "there is no such host, or no network"
    return " ".join(str(getattr(error, "reason", error)).split())
