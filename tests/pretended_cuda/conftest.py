"""Every test of this folder has the pretended device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pretended_cuda.torch_cuda import pretended_cuda


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    with pretended_cuda():
        yield
