"""Rules of one window, rank and without biases are lifted as far as they hold, and no further."""

import pytest

from tilewright.passes.rules import Apply, Rule, parse_rules, print_rule
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.generate.biases import biased
from tilewright.superopt.generate.lifting import Lifter, with_fused_biases
from tilewright.superopt.generate.rewriting import canonical
from tilewright.symbolic.expr import Const

LIFTER = Lifter()

FOUND = {
    "any window": (
        """
rule r
  for x[a, b, c, d], y: weight[e, b, 3, 3], z: weight[e, b, 3, 3]
  from Add(Conv(x, y, pads=(1, 1, 1, 1)), Conv(x, z, pads=(1, 1, 1, 1)))
  to Conv(x, Add(y, z), pads=(1, 1, 1, 1))
""",
        """
rule r
  for x[a, b, c, d], y: weight[e, f, g, h], z: weight[e, f, g, h]
  from Add(Conv(x, y, **conv), Conv(x, z, **conv))
  to Conv(x, Add(y, z), **conv)
""",
    ),
    "one group": (
        """
rule r
  for x[a, b, c, d], y: weight[e, b, 1, 3], z: weight[f, b, 1, 3]
  from Concat(Conv(x, y, pads=(0, 1, 0, 1)), Conv(x, z, pads=(0, 1, 0, 1)), axis=1)
  to Conv(x, Concat(y, z, axis=0), pads=(0, 1, 0, 1))
""",
        """
rule r
  for x[a, b, c, d], y: weight[e, b, f, g], z: weight[h, b, f, g]
  from Concat(Conv(x, y, group=1, **conv), Conv(x, z, group=1, **conv), axis=1)
  to Conv(x, Concat(y, z, axis=0), group=1, **conv)
""",
    ),
    "points only": (
        """
rule r
  for x[a, b, c, d], y: weight[e, b, 1, 1]
  from ReduceMean(Conv(x, y, pads=(0, 0, 0, 0)), axes=(-2, -1))
  to Conv(ReduceMean(x, axes=(-2, -1)), y, pads=(0, 0, 0, 0))
""",
        """
rule r
  for x[a, b, c, d], y: weight[e, f, 1, 1]
  from ReduceMean(Conv(x, y, dilations=(1, 1), pads=(0, 0, 0, 0), strides=(1, 1), **conv), \
axes=(-2, -1), keepdims=True, **reduction)
  to Conv(ReduceMean(x, axes=(-2, -1), keepdims=True, **reduction), y, \
dilations=(1, 1), pads=(0, 0, 0, 0), strides=(1, 1), **conv)
""",
    ),
    "any leading dimensions": (
        """
rule r
  for x[a, b], y[b, c], z[b, c]
  from Add(MatMul(x, y), MatMul(x, z))
  to MatMul(x, Add(y, z))
""",
        """
rule r
  for x[*s, a, b], y[*t, b, c], z[*t, b, c]
  from Add(MatMul(x, y), MatMul(x, z))
  to MatMul(x, Add(y, z))
""",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_rule_is_lifted_as_far_as_it_holds(name: str) -> None:
    (found,), (wanted,) = map(parse_rules, FOUND[name])
    plain, *_ = LIFTER.lifted(found)
    assert plain == canonical(wanted)


def _with_biases(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return next(one for one in LIFTER.lifted(rule) if one.name.endswith("-with-biases"))


def test_biases_of_targets_are_found() -> None:
    (wanted,) = parse_rules("""
rule r-with-biases
  for x[a, b, c, d], y: weight[e, f, g, h], z: weight[e], w: weight[e, f, g, h], v: weight[e]
  from Add(Conv(x, y, z, **conv), Conv(x, w, v, **conv))
  to Conv(x, Add(y, w), Add(z, v), **conv)
""")
    assert _with_biases(FOUND["any window"][0]) == wanted
    assert "Concat(z, v, axis=0)" in print_rule(_with_biases(FOUND["one group"][0]))


def test_a_bias_below_a_window_takes_that_there_is_no_padding() -> None:
    """Padding is not shifted: of all windows of the second convolution, those without padding are left."""
    rule = _with_biases("""
rule r
  for x[a, b, c, d], y: weight[e, b, 1, 1], z: weight[f, e, 3, 3]
  let composed = Conv(z, Transpose(y, perm=(1, 0, 2, 3)), dilations=(1, 1), group=1, pads=(0, 0, 0, 0), strides=(1, 1))
  from Conv(Conv(x, y, pads=(0, 0, 0, 0)), z, pads=(1, 1, 1, 1))
  to Conv(x, composed, pads=(1, 1, 1, 1))
""")
    (source,) = rule.sources
    assert isinstance(source, Apply)
    assert source.attribute("pads") == (0, 0, 0, 0)
    assert try_rule(rule, shapes=6, seed=5).holds


def test_most_biases_are_false() -> None:
    """What is listed for a rule is a list of candidates: those that are larger than the one that holds, too."""
    (found,) = parse_rules(FOUND["any window"][0])
    both, first = biased(found)
    assert len(both.rules) > 5
    assert sum(try_rule(rule, shapes=2, tries=60).holds for rule in both.rules) == 1
    assert len(first.sources) == 1


def test_what_is_added_to_channels_is_a_bias() -> None:
    (rule,) = parse_rules("""
rule r
  for x[a, b, c, d], y: weight[e, b, 1, 1], z: weight[e]
  from Add(Conv(x, y), Reshape(z, shape=(e, 1, 1)))
  to Conv(x, y, z)
""")
    fused = with_fused_biases(rule)
    assert fused.sources == fused.targets


def test_false_rules_are_not_lifted() -> None:
    (rule,) = parse_rules("""
rule r
  for x[a, b], y[b, b], z[b, b]
  from MatMul(MatMul(x, y), z)
  to MatMul(MatMul(x, z), y)
""")
    assert not list(LIFTER.lifted(rule))


def test_a_bias_below_padding_is_an_image_at_the_border() -> None:
    """With any padding: what the second convolution makes of an image of the first one's bias is added."""
    (rule,) = parse_rules("""
rule r
  for x[a, b, c, d], y: weight[e, b, 1, 1], z: weight[f, e, 3, 3]
  let composed = Conv(z, Transpose(y, perm=(1, 0, 2, 3)), dilations=(1, 1), group=1, pads=(0, 0, 0, 0), strides=(1, 1))
  from Conv(Conv(x, y, pads=(0, 0, 0, 0)), z, pads=(1, 1, 1, 1))
  to Conv(x, composed, pads=(1, 1, 1, 1))
""")
    (found,) = (one for one in LIFTER.lifted(rule) if one.name == "r-with-border")
    (source,) = found.sources
    assert isinstance(source, Apply)
    assert source.rest is not None
    assert source.attribute("pads") is None
    assert "Expand(Reshape(z, shape=(1, e, 1, 1)), shape=(1, e, c, d))" in print_rule(found)
    assert try_rule(found, shapes=6, seed=5).holds


@pytest.mark.share(2)
@pytest.mark.parametrize("function", ["Sigmoid(x)", "Relu(x)", "Clip(x, 0.0, 6.0)"])
def test_functions_that_keep_the_order_are_taken_of_fewer_places(function: str) -> None:
    """Of images of any size, without padding: that is minus infinity, which not all of them keep."""
    (rule,) = parse_rules(f"""
rule r
  for x[a, b, 4, 6]
  from MaxPool({function}, kernel_shape=(2, 2), strides=(2, 2))
  to {function.replace("x", "MaxPool(x, kernel_shape=(2, 2), strides=(2, 2))")}
""")
    images, volumes = LIFTER.lifted(rule)
    for found, pads in ((images, "0, 0, 0, 0"), (volumes, "0, 0, 0, 0, 0, 0")):
        assert f"ceil_mode=False, pads=({pads}), **pool" in print_rule(found)
        assert not any(isinstance(extent, Const) for extent in found.variables[0].shape)


def test_functions_that_do_not_keep_the_order_stay() -> None:
    (rule,) = parse_rules("""
rule r
  for x[a, b, 4, 6]
  from MaxPool(Neg(x), kernel_shape=(2, 2), strides=(2, 2))
  to Neg(MaxPool(x, kernel_shape=(2, 2), strides=(2, 2)))
""")
    assert not list(LIFTER.lifted(rule))
