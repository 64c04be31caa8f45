"""Sizes: the text is exact, and what is no size is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.sizes import format_size, parse_size


@given(st.integers(0, 10**15 - 1))
def test_format_is_read_back_exactly(count: int) -> None:
    assert parse_size(format_size(count)) == count


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("48K", 49152), ("1m", 1 << 20), (" 2GiB ", 2 << 30), ("1T", 1 << 40), ("77", 77)]
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1 000", "0x10", "1KB", "٣", "9" * 40])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None
