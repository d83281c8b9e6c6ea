"""Downloads that continue where they broke off and end with the right checksum or not at all."""

from __future__ import annotations

import hashlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from dml.core.errors import UserError
from dml.core.progress import transferred

CHUNK = 1 << 20
ATTEMPTS = 4  # without a single new byte in between
Report = Callable[[int, int | None], None]


def fetch(url: str, target: Path, md5: str | None, *, pause: float = 2.0) -> Path:
    """Downloads `url` to `target`; what is there already of an earlier attempt is kept.

    Args:
        url: http, https, ftp or file.
        target: the finished file; until then the bytes are in `<target>.partial` beside it.
        md5: expected checksum, if one was published.
        pause: seconds before another attempt after the connection broke.

    Raises:
        UserError: no such file there, the connection breaks again and again, or what arrived has
            another checksum (it is deleted then).
    """
    if target.is_file():
        check_md5(target, md5)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    with transferred(target.name) as report:
        _until_complete(url, partial, report, pause)
    try:
        check_md5(partial, md5)
    except UserError:
        partial.unlink()  # continuing it would never make it right
        raise
    return partial.replace(target)


def check_md5(path: Path, md5: str | None) -> None:
    """Compares a file with its published checksum.

    Raises:
        UserError: it is another file.
    """
    if md5 is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != md5:
        raise UserError(
            f"{path.name}: md5 is {found}, published is {md5}: the file is damaged or another one; "
            f"get it again, from another place if need be (--url URL or --archive FILE)"
        )


def _until_complete(url: str, partial: Path, report: Report, pause: float) -> None:
    failures = 0
    while True:
        before = _size(partial)
        try:
            if _continue(url, partial, report):
                return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise UserError(
                    f"{url} answers {error.code} {error.reason}; name another place with "
                    f"--url URL, or a file of yours with --archive FILE"
                ) from error
            reason = f"the server answers {error.code} {error.reason}"  # and recovers, perhaps
        except ValueError as error:
            raise UserError(f"--url {url}: {error}; expected http://… or https://…") from error
        except (OSError, HTTPException) as error:
            reason = str(getattr(error, "reason", error))
        failures = 0 if _size(partial) > before else failures + 1
        if failures == ATTEMPTS:
            raise UserError(
                f"{url}: {reason} ({_size(partial) / 1e6:.1f} MB are here); run the same command "
                f"again to continue, or name another place with --url URL"
            )
        time.sleep(pause)


def _continue(url: str, partial: Path, report: Report) -> bool:
    """Fetches what is missing of a file; True if all of it has arrived."""
    start = _size(partial)
    request = urllib.request.Request(url, headers={"User-Agent": "dml-benchmark"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # asked for bytes beyond the end
            raise
        whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if whole and int(whole[1]) == start:
            return True
        partial.unlink()  # longer than the file is: of something else
        return False
    with response:
        if start and not _continues_at(response, start):
            start = 0  # the server sends the whole file whatever was asked for
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        done = start
        with open(partial, "ab" if start else "wb") as file:
            report(done, total)
            while chunk := response.read(CHUNK):
                done += file.write(chunk)
                report(done, total)
    return total is None or done == total


def _continues_at(response: object, start: int) -> bool:
    headers = getattr(response, "headers", {})
    given = re.match(r"bytes (\d+)-", headers.get("Content-Range") or "")
    return getattr(response, "status", None) == 206 and given is not None and int(given[1]) == start


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
