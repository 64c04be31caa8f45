"""Several spaces as one: each candidate is one of a member, and stays one when it is varied or crossed."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tests.sketch import programs
from tilewright.sketch import sketch_spaces
from tilewright.space.union import Union
from tilewright.space.variation import nodes
from tilewright.target.target import Target

FOUR_CORES = replace(Target.host(), cores=4)


@pytest.fixture(name="union", scope="module")
def made_union() -> Union:
    found = sketch_spaces(programs.naive(programs.softmax(8, 24)), FOUR_CORES)
    return Union(tuple(space for _, space in found), tuple(str(sketch) for sketch, _ in found))


def test_samples_are_candidates_of_all_members(union: Union) -> None:
    digits = union.sample(300, np.random.default_rng(0))
    assert union.allowed(digits).all()
    assert set(digits[:, 0].tolist()) == set(range(len(union.members)))
    member, own = union.own_digits(digits[0])
    assert str(union.schedule(digits[0]).program) == str(union.members[member].schedule(own).program)
    assert union.decisions(digits[0]) == (("space", union.labels[member]), *union.members[member].decisions(own))


def test_digits_beyond_a_member_are_not_allowed(union: Union) -> None:
    digits = np.zeros((1, len(union.radices)), np.int64)
    digits[0, 0] = min(range(len(union.members)), key=lambda member: len(union.members[member].radices))
    assert union.allowed(digits)[0]
    digits[0, -1] = 1
    assert not union.allowed(digits)[0]


def test_features_tell_candidates_apart(union: Union) -> None:
    """A knob that two members have is one column; one that a member has not is NaN."""
    digits = np.unique(union.sample(300, np.random.default_rng(1)), axis=0)
    features = union.features(digits)
    assert len(np.unique(np.nan_to_num(features, nan=-1.0), axis=0)) == len(digits)
    widths = [sum(member.widths) for member in union.members]
    assert features.shape[1] < len(union.members) + sum(widths), "shared columns"
    own = len(union.members) + np.array(widths)[digits[:, 0]]
    np.testing.assert_array_equal((~np.isnan(features)).sum(axis=1), own)


def test_one_decision_is_varied(union: Union) -> None:
    random = np.random.default_rng(2)
    for digits in union.sample(200, random):
        varied = union.vary(digits, random)
        assert (varied != digits).sum() == 1
        assert varied[0] == digits[0]
        assert union.allowed(varied[None])[0]


def test_sizes_of_tiles_are_moved() -> None:
    """Most changed sizes keep their product: a factor goes from one loop to another."""
    (_, space), *_ = sketch_spaces(programs.naive(programs.matmul(64, 64, 64)), FOUR_CORES)
    random, split = np.random.default_rng(3), 0
    for digits in space.sample(200, random):
        before, after = space.describe(digits), space.describe(space.vary(digits, random))
        (name,) = (name for name in before if before[name] != after[name])
        value = after[name]
        if isinstance(value, tuple):
            split += 1
            assert prod(size for size in value if isinstance(size, int)) == 64
    assert split > 100, "most bits are in sizes"


def test_children_take_whole_nodes(union: Union) -> None:
    random, mixed = np.random.default_rng(4), 0
    parents = union.sample(400, random)
    for first, second in zip(parents[::2], parents[1::2], strict=True):
        child = union.cross(first, second, random)
        assert union.allowed(child[None])[0]
        assert child[0] == first[0]
        (member, own), (_, of_first) = union.own_digits(child), union.own_digits(first)
        other, others = union.own_digits(second)
        known = dict(zip(union.members[other].knobs, others.tolist(), strict=True))
        knobs = union.members[member].knobs
        for positions in nodes(knobs).values():
            from_second = [known.get(knobs[p], of_first[p]) for p in positions]
            assert own[positions].tolist() in ([of_first[p] for p in positions], from_second)
        mixed += bool((own != of_first).any())
    assert mixed > 100
