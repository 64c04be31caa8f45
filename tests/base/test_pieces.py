"""Pieces of files against their joined parts."""

from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.pieces import in_pieces


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 16))
def test_all_pieces_but_the_last_begin_and_end_at_multiples_of_the_size(parts: list[bytes], size: int) -> None:
    pieces = [bytes(piece) for piece in in_pieces([memoryview(part) for part in parts], size)]
    assert b"".join(pieces) == b"".join(parts)
    assert all(pieces)
    assert all(len(piece) % size == 0 for piece in pieces[:-1])


def test_long_parts_are_not_copied() -> None:
    part = memoryview(bytes(range(50)))
    assert [piece.obj is part.obj for piece in in_pieces([b"0123", part], 8)] == [False, True, False]
