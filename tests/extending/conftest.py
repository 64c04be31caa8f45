"""What is installed is asked anew in each test."""

from collections.abc import Iterator

import pytest

from tilewright.base import plugins


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()
