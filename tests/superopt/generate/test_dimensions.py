"""Rules of images become rules of volumes, where they hold there."""

import pytest

from tilewright.passes.rules import Rule, parse_rules
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.generate.dimensions import of_volumes
from tilewright.superopt.generate.lifting import Lifter
from tilewright.superopt.generate.rewriting import canonical

CASES = {
    "convolutions": (
        """
rule r
  for x[a, b, c, d], y: weight[e, f, g, h], z: weight[e], w: weight[e, f, g, h], v: weight[e]
  from Add(Conv(x, y, z, **conv), Conv(x, w, v, **conv))
  to Conv(x, Add(y, w), Add(z, v), **conv)
""",
        """
rule r-of-volumes
  for x[a, b, c, d, i], y: weight[e, f, g, h, j], z: weight[e], w: weight[e, f, g, h, j], v: weight[e]
  from Add(Conv(x, y, z, **conv), Conv(x, w, v, **conv))
  to Conv(x, Add(y, w), Add(z, v), **conv)
""",
    ),
    "filters that are enlarged": (
        """
rule r
  for x[a, b, c, d], y: weight[e, f, g + h + i, j + k + l], z: weight[e, f, g, j]
  let all = Add(Pad(z, before=(0, 0, h, k), after=(0, 0, i, l)), y)
  let narrow = Conv(x, z, pads=(m, n, o, p), dilations=(1, 1), **conv)
  from Add(Conv(x, y, pads=(m + h, n + k, o + i, p + l), dilations=(1, 1), **conv), narrow)
  to Conv(x, all, pads=(m + h, n + k, o + i, p + l), dilations=(1, 1), **conv)
  need h >= 0, i >= 0, k >= 0, l >= 0
""",
        """
rule r-of-volumes
  for x[a, b, c, d, t], y: weight[e, f, g + h + i, j + k + l, q + r + s], z: weight[e, f, g, j, q]
  let all = Add(Pad(z, before=(0, 0, h, k, r), after=(0, 0, i, l, s)), y)
  let narrow = Conv(x, z, pads=(m, n, n1, o, p, p1), dilations=(1, 1, 1), **conv)
  from Add(Conv(x, y, pads=(m + h, n + k, n1 + r, o + i, p + l, p1 + s), dilations=(1, 1, 1), **conv), narrow)
  to Conv(x, all, pads=(m + h, n + k, n1 + r, o + i, p + l, p1 + s), dilations=(1, 1, 1), **conv)
  need h >= 0, i >= 0, k >= 0, l >= 0, r >= 0, s >= 0
""",
    ),
    "means": (
        """
rule r
  for x[a, b, c, d], y: weight[e, f, 1, 1]
  let points = Conv(x, y, pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), **conv)
  from ReduceMean(points, axes=(-2, -1), keepdims=True)
  let mean = ReduceMean(x, axes=(-2, -1), keepdims=True)
  to Conv(mean, y, pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), **conv)
""",
        """
rule r-of-volumes
  for x[a, b, c, d, g], y: weight[e, f, 1, 1, 1]
  let points = Conv(x, y, pads=(0, 0, 0, 0, 0, 0), strides=(1, 1, 1), dilations=(1, 1, 1), **conv)
  from ReduceMean(points, axes=(-3, -2, -1), keepdims=True)
  let mean = ReduceMean(x, axes=(-3, -2, -1), keepdims=True)
  to Conv(mean, y, pads=(0, 0, 0, 0, 0, 0), strides=(1, 1, 1), dilations=(1, 1, 1), **conv)
""",
    ),
}


def _rule(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


@pytest.mark.parametrize("name", CASES)
def test_each_window_gets_a_dimension(name: str) -> None:
    images, volumes = map(_rule, CASES[name])
    deeper = of_volumes(images)
    assert deeper is not None
    made, wanted = canonical(deeper), canonical(volumes)
    assert (made.sources, made.targets) == (wanted.sources, wanted.targets)
    assert set(map(str, made.needs)) == set(map(str, wanted.needs))
    assert Lifter().holds(made)


@pytest.mark.parametrize(
    "text",
    [
        "for x[*s, a, b], y[*t, b, c], z[*t, b, c]\n from Add(MatMul(x, y), MatMul(x, z))\n to MatMul(x, Add(y, z))",
        "for x[a, b, c, d], y: weight[e, b, f, g]\n from ReduceMean(Conv(x, y), axes=(-1,))\n to Conv(x, y)",
    ],
)
def test_what_has_no_volumes(text: str) -> None:
    assert of_volumes(_rule(f"rule r\n {text}")) is None


def test_a_false_rule_of_volumes_is_refuted() -> None:
    false = _rule("""
rule r
  for x[a, b, c, d], y: weight[e, b, f, g]
  from Conv(x, y, group=1, **conv)
  to Conv(Transpose(x, perm=(0, 1, 3, 2)), Transpose(y, perm=(0, 1, 3, 2)), group=1, **conv)
""")
    deeper = of_volumes(false)
    assert deeper is not None
    assert not try_rule(deeper, shapes=8).holds
    assert not Lifter().holds(canonical(deeper))
