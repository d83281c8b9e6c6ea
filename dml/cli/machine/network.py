"""Whether the hub of weights and the server of the first dataset answer; no run needs them."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from dml.cli.machine.outcome import Outcome
from dml.core.download import MIRROR, NETWORK_ERRORS
from dml.core.errors import first_line
from dml.core.hub import is_offline
from dml.core.secrets import mask_text

SECONDS = 4.0  # for an answer
OFFLINE = "download on another machine: docs/guides/without_internet.md"


def try_hub() -> Outcome:
    """Asks the hub of the weights, or its mirror of `HF_ENDPOINT`."""
    from huggingface_hub import constants  # imported late: `HF_ENDPOINT` is read then

    if is_offline():
        return Outcome("not asked: HF_HUB_OFFLINE forbids it")
    return _ask(constants.ENDPOINT)


def try_dataset(address: str) -> Outcome:
    """Asks the server of a dataset, or the mirror of `DML_MIRROR`.

    Args:
        address: of the file.
    """
    mirror = os.environ.get(MIRROR, "")
    if not mirror:
        return _ask(address)
    if "://" in mirror:
        return _ask(mirror)
    if Path(mirror).expanduser().is_dir():
        return Outcome(f"the folder of {MIRROR} is there")
    remedy = f"set {MIRROR} to a folder or an address, or unset it"
    return Outcome(f"the folder of {MIRROR} does not exist", remedy, works=False)


def _ask(address: str) -> Outcome:
    """Asks a server for the head of a file; any answer counts, also that the file is not there.

    A thread asks: nothing else limits the time in which the address of a host is looked up.
    """
    host = _find_host(address)
    answer: Future[str] = Future()
    threading.Thread(target=_send, args=(address, answer), daemon=True).start()
    try:
        reason = answer.result(timeout=SECONDS)
    except TimeoutError:
        reason = f"silent for {SECONDS:.0f} s"
    if not reason:
        return Outcome(f"{host} answers")
    return Outcome(f"{host}: {reason}", OFFLINE, works=False, is_needed=False)


def _find_host(address: str) -> str:
    """Returns the host of an address, or the address if it has none."""
    with suppress(ValueError):  # it is no address
        host = urlsplit(address).hostname
        if host:
            return host
    return mask_text(address)


def _send(address: str, answer: Future[str]) -> None:
    """Sets an empty text if a server answers, or else the reason."""
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=SECONDS):
            answer.set_result("")
    except urllib.error.HTTPError as error:
        is_proxy = error.code == 407
        answer.set_result("the proxy asks for a password" if is_proxy else "")
    except urllib.error.URLError as error:
        reason = error.reason  # a text, or the error of the connection
        answer.set_result(reason if isinstance(reason, str) else first_line(reason))
    except (*NETWORK_ERRORS, OSError, ValueError) as error:
        answer.set_result(first_line(error))
