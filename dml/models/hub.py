"""Weights on the Hugging Face hub: their address, and copies in the hub's own cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dml.core.download import Checksum, ChecksumError
from dml.core.errors import UserError

HUB_FILE = "model.safetensors"


def hub_url(hub_id: str) -> str:
    """Returns the address of a model's weights on the hub, or on the mirror in HF_ENDPOINT."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{endpoint}/{hub_id}/resolve/main/{HUB_FILE}"


def hub_token() -> str | None:
    """Returns the user's token: HF_TOKEN, or the one that `hf auth login` stored."""
    from huggingface_hub import get_token

    return get_token()


def find_in_hub_cache(hub_id: str) -> Path | None:
    """Returns a model's weights in the hub's own cache, where timm or transformers left them.

    Raises:
        UserError: the cached file is damaged.
    """
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(hub_id, HUB_FILE)
    if not isinstance(path, str):  # None, or a marker that the hub has no such file
        return None
    blob = Path(path).resolve()
    # The cache names large files by their SHA-256 where the file system has links.
    if re.fullmatch(r"[0-9a-f]{64}", blob.name):
        try:
            Checksum("sha256", blob.name).check(blob)
        except ChecksumError as error:
            raise UserError(
                f"backbone.weights: {blob} is damaged ({error}); delete it to download it again"
            ) from error
    return Path(path)
