"""Preconditions are found where a rule is false without them, and nowhere else."""

import pytest

from tilewright.passes.rules import parse_rules
from tilewright.superopt.prove.preconditions import find_needs
from tilewright.superopt.prove.stored_proofs import with_proofs

_HALF = """\
rule other-half
  for x[*s, n], y[*s, m]
  from Slice(Concat(x, y, axis=-1), axes=(-1,), starts=(m,), ends=(n + m,))
  to y
"""


def test_equal_extents_are_found_and_written() -> None:
    (rule,) = parse_rules(_HALF)
    assert list(map(str, find_needs(rule) or ())) == ["m == n"]
    written = with_proofs(_HALF, shapes=3)
    assert written.startswith(f"{_HALF}  need m == n\n  proof proved by ")
    assert with_proofs(written, shapes=3) == written


def test_what_is_false_everywhere_needs_nothing_that_could_help() -> None:
    (rule,) = parse_rules("rule r\n  for x[m, k], y[k, m]\n  from Relu(MatMul(x, y))\n  to MatMul(x, Relu(y))")
    assert find_needs(rule, instances=40) is None


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", ["Conv({})", "Relu(Conv({}))"])
def test_grouped_convolutions_need_as_many_groups_of_equal_outputs(wrapped: str) -> None:
    """The rules of TASO's file that nobody could prove."""
    conv = [wrapped.format(f"{x}, {w}, group={g}, **conv") for x, w, g in (("x", "a", "g"), ("y", "b", "e"))]
    joined = wrapped.format("Concat(x, y, axis=1), Concat(a, b, axis=0), group=g + e, **conv")
    variables = "x[n, g * c, h, w], y[n, e * d, h, w], a[o, c, r, s], b[p, d, r, s]"
    (rule,) = parse_rules(f"rule r\n  for {variables}\n  from Concat({', '.join(conv)}, axis=1)\n  to {joined}")
    assert list(map(str, find_needs(rule) or ())) == ["e == g", "o == p"]
