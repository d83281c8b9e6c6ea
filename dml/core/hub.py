"""Files of the Hugging Face hub: from its cache without a request, or received within limits.

huggingface_hub says where a file is and keeps the cache. By itself it asks the hub for files that
the cache has, waits minutes for a silent hub, and begins an interrupted file anew: here the hub is
asked once, and a large file is received by `dml.core.download`, into the cache.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dml.core.download import Checksum, download, partial_of, requests_allowed
from dml.core.errors import UserError, first_line
from dml.core.locks import wait_for_lock

# Otherwise each process asks the hub once more, to describe itself. Read when huggingface_hub is
# imported, which is late.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

T = TypeVar("T")

ANSWER_SECONDS = 8.0  # in which the hub says where a file is; also HF_HUB_ETAG_TIMEOUT
FILE_SECONDS = 120.0  # in which huggingface_hub receives a small file, of less than 10 MB
SHA256_DIGITS = 64
# What systems say of a host whose address nobody knows.
NO_HOST = ("Name or service not known", "name resolution", "nodename nor servname")


class HubError(UserError):
    """The hub does not have a file, or does not answer.

    Attributes:
        reason: the message without what to do.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__("; ".join(filter(None, [reason, advice])))
        self.reason = reason


def find_cached(model: str, names: Sequence[str]) -> Path | None:
    """Returns the first of several files of a model that the hub's cache has; None: none of them.

    Args:
        model: `user/name`, or `user/name@revision`.
        names: of the files, in the order in which they are looked for.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    repository, revision = _split(model)
    for name in names:
        path = try_to_load_from_cache(
            repository, name, cache_dir=constants.HF_HUB_CACHE, revision=revision
        )
        if isinstance(path, str):
            return Path(path)
    return None


def find_hub_file(model: str, names: Sequence[str]) -> Path:
    """Returns the first of several files that a model of the hub has, downloaded if necessary.

    An interrupted download is continued by a later call.

    Args:
        model: `user/name`, or `user/name@revision`.
        names: of the files, in the order in which they are looked for.

    Raises:
        HubError: neither the cache nor the hub has such a file, or the hub does not answer.
        OSError: the cache cannot be written to.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError

    cached = find_cached(model, names)
    if cached is not None:
        return cached
    if not requests_allowed():
        raise HubError(f"{names[0]} of {model} is not in {constants.HF_HUB_CACHE}")
    for name in names:
        try:
            return _fetch(model, name)
        except EntryNotFoundError:  # the hub knows the model
            continue
    raise HubError(f"{model} on {constants.ENDPOINT} has no {' or '.join(names)}")


def find_hub_folder(model: str, names: Sequence[str]) -> Path:
    """Returns the folder of a snapshot of a model that has all of several files, from the cache if
    it has them, else downloaded.

    Args:
        model: `user/name`, or `user/name@revision`.
        names: of the files; the others of the model are not fetched.

    Raises:
        HubError: the model lacks a file, or the hub does not answer.
        OSError: the cache cannot be written to.
    """
    repository, _ = _split(model)
    first = find_hub_file(model, names[:1])
    # The commit of the first file, in the name of its folder: the model may change meanwhile.
    depth = len(Path(names[0]).parts) - 1
    folder = first.parents[depth]
    for name in names[1:]:
        find_hub_file(f"{repository}@{folder.name}", [name])
    return folder


def is_offline() -> bool:
    """Returns whether the user forbids requests to the hub (`HF_HUB_OFFLINE`)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def measure_hub_file(model: str, names: Sequence[str]) -> int | None:
    """Returns the bytes of the first of several files that a model has; None if nobody knows.

    Args:
        model: `user/name`, or `user/name@revision`.
        names: of the files, in the order in which they are looked for.
    """
    from huggingface_hub.errors import EntryNotFoundError

    cached = find_cached(model, names)
    if cached is not None:
        return cached.stat().st_size
    for name in names:
        try:
            return _ask_for_metadata(model, name).size
        except EntryNotFoundError:
            continue
        except HubError:
            return None
    return None


def _split(model: str) -> tuple[str, str | None]:
    repository, _, revision = model.partition("@")
    return repository, revision or None


def _fetch(model: str, name: str) -> Path:
    """Returns a file of a model, from the hub.

    Raises:
        EntryNotFoundError: the model has no such file.
        HubError: the hub does not answer, or its transfer fails.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.file_download import repo_folder_name

    repository, revision = _split(model)
    metadata = _ask_for_metadata(model, name)
    if len(metadata.etag) == SHA256_DIGITS:  # a large file, which is named by its checksum
        cache = Path(constants.HF_HUB_CACHE)
        folder = repo_folder_name(repo_id=repository, repo_type="model")
        lock = cache / ".locks" / folder / f"{metadata.etag}.dml.lock"
        with wait_for_lock(lock, f"downloading {name} of {repository}"):
            _receive(model, name, metadata, cache / folder / "blobs" / metadata.etag)
    # What is left for huggingface_hub: a small file, or the name of the large one in its cache.
    receive = partial(
        hf_hub_download,
        repository,
        name,
        revision=revision,
        endpoint=constants.ENDPOINT,
        cache_dir=constants.HF_HUB_CACHE,
        etag_timeout=_answer_seconds(),
    )
    return Path(_answer(model, receive, FILE_SECONDS))


def _receive(model: str, name: str, metadata: Any, target: Path) -> None:
    """Downloads a file to its place in the cache of the hub."""
    from huggingface_hub.utils import build_hf_headers

    checksum = Checksum("sha256", metadata.etag, metadata.size)
    allowed = build_hf_headers().get("authorization")
    headers = {"Authorization": allowed} if allowed else {}
    try:
        download(_address(model, name), target, checksum, advice="", headers=headers)
    except UserError as error:
        advice = "the same command begins anew, and a browser shows what the address sends"
        if partial_of(target).is_file():
            advice = "the same command continues"
        raise HubError(str(error), advice) from error


def _address(model: str, name: str) -> str:
    from huggingface_hub import constants, hf_hub_url

    repository, revision = _split(model)
    return hf_hub_url(repository, name, revision=revision, endpoint=constants.ENDPOINT)


def _ask_for_metadata(model: str, name: str) -> Any:
    """Returns checksum and size of a file of a model.

    Raises:
        EntryNotFoundError: the model has no such file.
        HubError: the hub does not answer, or refuses to.
    """
    from huggingface_hub import constants, get_hf_file_metadata

    ask = partial(get_hf_file_metadata, _address(model, name), timeout=_answer_seconds())
    metadata = _answer(model, ask, _answer_seconds())
    if metadata.etag is None or metadata.commit_hash is None:
        raise HubError(
            f"{model} on {constants.ENDPOINT}: no answer of a hub, but of a proxy, or HF_ENDPOINT "
            f"is wrong"
        )
    return metadata


def _answer_seconds() -> float:
    from huggingface_hub import constants

    is_set = bool(os.environ.get("HF_HUB_ETAG_TIMEOUT"))
    return float(constants.HF_HUB_ETAG_TIMEOUT) if is_set else ANSWER_SECONDS


def _answer(model: str, ask: Callable[[], T], seconds: float) -> T:
    """Returns what a function of huggingface_hub returns, if it does so in time.

    Its own limit is for each address of the hub and each of several attempts, and none is for
    finding the addresses: a thread waits for it, which is left alone at the end of the time.

    Raises:
        EntryNotFoundError: the model has no such file.
        HubError: any other error, or no answer.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    from huggingface_hub.utils import disable_progress_bars, logging

    disable_progress_bars()  # the line of the task shows it
    logging.set_verbosity_error()  # each attempt would be a warning
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # of huggingface_hub, its transport, or the disk
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except Exception as error:
        is_over = not answer.done()
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise
        reason = f"silent for {seconds:.0f} s" if is_over else _describe(error)
        raise HubError(f"{model} on {constants.ENDPOINT}: {reason}") from error


def _describe(error: Exception) -> str:
    """Returns why the hub has not answered, in a few words."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids requests"
    if isinstance(error, GatedRepoError):
        return "the terms of the model must be accepted on its page, with HF_TOKEN=<token>"
    if isinstance(error, RepositoryNotFoundError):
        return "there is no such model, or it is private and needs HF_TOKEN=<token>"
    if isinstance(error, HfHubHTTPError):
        return f"answers {error.response.status_code}"
    if "timed out" in str(error).lower() or "timeout" in type(error).__name__.lower():
        return f"silent for {_answer_seconds():.0f} s"
    reason = first_line(error)
    if any(text in reason for text in NO_HOST):
        return "there is no such host, or no network"
    return reason
