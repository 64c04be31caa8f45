"""What is remembered by identity: equal objects are others, and none is mistaken for one that is gone."""

from tilewright.base.identity import ByIdentity


def test_equal_objects_are_others() -> None:
    known, made = ByIdentity[int](), list[int]()

    def make() -> int:
        made.append(len(made))
        return made[-1]

    a, b = [1], [1]
    assert [known.of(make, a), known.of(make, b), known.of(make, a, b), known.of(make, b, a)] == [0, 1, 2, 3]
    assert [known.of(make, b, a), known.of(make, a), known.of(make, b)] == [3, 0, 1]
    assert len(made) == 4


def test_none_is_kept_like_anything_else() -> None:
    known, asked, one = ByIdentity[None](), list[int](), object()
    for _ in range(3):
        assert known.of(lambda: asked.append(1), one) is None
    assert asked == [1]


def test_an_object_that_is_gone_is_not_mistaken_for_another() -> None:
    known = ByIdentity[int]()
    for number in range(1000):
        key = [number]  # the last one's memory is free, but for the table
        assert known.of(lambda number=number: number, key) == number
