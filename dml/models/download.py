"""Fetching weights: whole or not at all, and checked against the hash that was promised."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dml.core.atomic_io import replacing
from dml.core.errors import UserError

logger = logging.getLogger(__name__)

HUB_FILE = "model.safetensors"
CHUNK = 1 << 20
TIMEOUT_S = 30


class UnreachableError(Exception):
    """The server cannot be reached, has no such file or broke off; the message says which."""


def promised_hash(name: str) -> str:
    """The start of the sha256 in names like `resnet50-0676ba61.pth`, else an empty string."""
    match = re.search(r"-([0-9a-f]{8,64})\.[^.]+$", name)
    return match.group(1) if match else ""


def check_hash(path: Path, promised: str, advice: str) -> None:
    """Raises UserError unless the sha256 of the file at `path` begins with `promised`."""
    if not promised:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(promised):
        raise UserError(
            f"backbone.weights: the sha256 of {path} begins with {found[: len(promised)]} "
            f"instead of {promised}; {advice}"
        )


def download(url: str, target: Path) -> None:
    """Stores the file at `url` under `target`, and only if it is complete and as promised.

    The promise is the hash in the name of `target`, else the one that the server sends along.

    Raises:
        UnreachableError: no server, no such file, or the connection broke off.
        UserError: what came has another hash.
    """
    logger.info("downloading %s to %s", url, target)
    redirects = _Redirects()
    with replacing(target) as temporary:
        with open(temporary, "wb") as file:
            for chunk in _chunks(url, redirects):
                file.write(chunk)
        promised = promised_hash(target.name) or redirects.sha256
        check_hash(temporary, promised, f"{url} is damaged or another file; nothing was kept")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Remembers the sha256 that the Hugging Face hub sends when it redirects to a large file."""

    sha256 = ""

    def redirect_request(self, *args: Any) -> urllib.request.Request | None:
        *_, headers, _url = args
        sent = headers.get("X-Linked-Etag", "").strip('"')
        if re.fullmatch(r"[0-9a-f]{64}", sent):
            self.sha256 = sent
        return super().redirect_request(*args)


def _chunks(url: str, redirects: _Redirects) -> Iterator[bytes]:
    """The bytes at `url`; UnreachableError unless all of them come."""
    received = 0
    try:
        with urllib.request.build_opener(redirects).open(url, timeout=TIMEOUT_S) as response:
            expected = response.headers.get("Content-Length")
            while chunk := response.read(CHUNK):
                received += len(chunk)
                yield chunk
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", "") if type(error) is urllib.error.URLError else error
        raise UnreachableError(" ".join(str(reason).split()) or type(error).__name__) from error
    if expected is not None and received != int(expected):
        raise UnreachableError(f"it broke off after {received} of {expected} bytes")


def hub_url(hub_id: str) -> str:
    """Address of a model's weights on the Hugging Face hub, or on the mirror in HF_ENDPOINT."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{endpoint}/{hub_id}/resolve/main/{HUB_FILE}"


def cached_by_hub(hub_id: str) -> Path | None:
    """A model's weights in the hub's own cache, left there by timm or transformers.

    Raises:
        UserError: the cached file is damaged.
    """
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(hub_id, HUB_FILE)
    if not isinstance(path, str):  # None, or a marker that the hub has no such file
        return None
    blob = Path(path).resolve()
    # That cache names large files by their sha256 where the file system has links.
    promised = blob.name if re.fullmatch(r"[0-9a-f]{64}", blob.name) else ""
    check_hash(blob, promised, "it is damaged: delete it to download it again")
    return Path(path)
