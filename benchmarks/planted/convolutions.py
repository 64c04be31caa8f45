"""Convolutions that are one convolution, or smaller ones."""

import numpy as np

from .writer import Array, Maker, Network, Planted, planted, weights

SIDE = 28
"""Places along each side of an image."""
PADS = [1, 1, 1, 1]


def _image(network: Network, channels: int, side: int = SIDE) -> str:
    return network.input("x", 1, channels, side, side)


def _padded(weight: Array) -> Array:
    """Filters of 3 x 3 taps from filters of one."""
    return np.pad(weight, ((0, 0), (0, 0), (1, 1), (1, 1)))


def sum_of_convolutions() -> Planted:
    """Two convolutions of one image, added."""
    u, v = weights(0, 64, 64, 3, 3), weights(1, 64, 64, 3, 3)
    given, rewritten = Network("given"), Network("rewritten")
    x = _image(given, 64)
    given.returns(given("Add", given("Conv", x, u, pads=PADS), given("Conv", x, v, pads=PADS)))
    rewritten.returns(rewritten("Conv", _image(rewritten, 64), u + v, pads=PADS))
    return planted("two convolutions summed", "TASO", given, rewritten)


def batch_statistics(seed: int, channels: int) -> tuple[Array, Array, Array, Array]:
    """Scale, bias, mean and variance of a batch normalization."""
    random = np.random.default_rng(seed)
    scale, variance = (random.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(2))
    bias, mean = (random.standard_normal(channels).astype(np.float32) for _ in range(2))
    return scale, bias, mean, variance


EPSILON = 1e-5


def _as_scale_and_shift(statistics: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
    scale, bias, mean, variance = statistics
    factor = scale / np.sqrt(variance + np.float32(EPSILON))
    return factor, bias - mean * factor


def training_form() -> Planted:
    """RepVGG's block as it is trained: a sum of filters of 3 x 3, of one tap, and of none, each normalized."""
    channels = 64
    wide, narrow = weights(0, channels, channels, 3, 3), weights(1, channels, channels, 1, 1)
    norms = [batch_statistics(seed, channels) for seed in (2, 3, 4)]
    given, rewritten = Network("given"), Network("rewritten")
    x = _image(given, channels)
    branches = [given("Conv", x, wide, pads=PADS), given("Conv", x, narrow), x]
    normal = [
        given("BatchNormalization", branch, *statistics, epsilon=EPSILON)
        for branch, statistics in zip(branches, norms, strict=True)
    ]
    given.returns(given("Relu", given("Add", given("Add", normal[0], normal[1]), normal[2])))
    filters = [wide, _padded(narrow), _padded(np.eye(channels, dtype=np.float32)[:, :, None, None])]
    maps = [_as_scale_and_shift(statistics) for statistics in norms]
    joined = sum(w * scale[:, None, None, None] for w, (scale, _) in zip(filters, maps, strict=True))
    bias = sum(shift for _, shift in maps)
    y = rewritten("Conv", _image(rewritten, channels), np.asarray(joined), np.asarray(bias), pads=PADS)
    rewritten.returns(rewritten("Relu", y))
    return planted("RepVGG, training form", "Ding et al., RepVGG", given, rewritten)


def pool_after_points() -> Planted:
    """A mean over all places after a convolution of points, as in a classifier without an activation between."""
    weight, bias = weights(0, 256, 128, 1, 1), weights(1, 256)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("GlobalAveragePool", given("Conv", _image(given, 128), weight, bias)))
    rewritten.returns(rewritten("Conv", rewritten("GlobalAveragePool", _image(rewritten, 128)), weight, bias))
    return planted("global pool after 1x1", "STENSO", given, rewritten)


def points_after_points() -> Planted:
    """Two convolutions of points without an activation between them (a low-rank bottleneck turned around)."""
    first, second, a, b = weights(0, 256, 64, 1, 1), weights(1, 64, 256, 1, 1), weights(2, 256), weights(3, 64)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("Conv", given("Conv", _image(given, 64), first, a), second, b))
    one = second[:, :, 0, 0] @ first[:, :, 0, 0]
    y = rewritten("Conv", _image(rewritten, 64), one[:, :, None, None], second[:, :, 0, 0] @ a + b)
    rewritten.returns(y)
    return planted("1x1 after 1x1", "RepVGG, DBB", given, rewritten)


def filters_after_points() -> Planted:
    """A convolution of 3 x 3 after one of points (a branch of a diverse branch block)."""
    first, second = weights(0, 256, 64, 1, 1), weights(1, 64, 256, 3, 3)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("Conv", given("Conv", _image(given, 64), first), second, pads=PADS))
    one = np.einsum("omyx,mc->ocyx", second, first[:, :, 0, 0])
    rewritten.returns(rewritten("Conv", _image(rewritten, 64), one, pads=PADS))
    return planted("3x3 after 1x1", "DBB", given, rewritten)


def _border(weight: Array, shift: Array) -> Array:
    """What padded filters of 3 x 3 make of an image of one number for each channel: at the border, less taps see it."""
    taps = np.einsum("ocyx,c->oyx", weight, shift)
    inside = np.pad(np.ones((SIDE, SIDE), np.float32), 1)
    seen = (taps[:, y, x, None, None] * inside[y : y + SIDE, x : x + SIDE] for y in range(3) for x in range(3))
    return np.asarray(sum(seen), np.float32)[None]


def filters_after_shifted_points() -> Planted:
    """The same with biases, which padding does not have."""
    first, second, a, b = weights(0, 256, 64, 1, 1), weights(1, 64, 256, 3, 3), weights(2, 256), weights(3, 64)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("Conv", given("Conv", _image(given, 64), first, a), second, b, pads=PADS))
    one = np.einsum("omyx,mc->ocyx", second, first[:, :, 0, 0])
    y = rewritten("Conv", _image(rewritten, 64), one, b, pads=PADS)
    rewritten.returns(rewritten("Add", y, _border(second, a)))
    return planted("3x3 after 1x1, with biases", "DBB", given, rewritten)


def points_after_upsampling() -> Planted:
    """Channels are reduced after an image is enlarged (a detection neck)."""
    weight, bias = weights(0, 64, 128, 1, 1), weights(1, 64)
    scales = np.array([1, 1, 2, 2], np.float32)
    given, rewritten = Network("given"), Network("rewritten")
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    large = given("Resize", _image(given, 128), "", scales, **options)
    given.returns(given("Conv", large, weight, bias))
    small = rewritten("Conv", _image(rewritten, 128), weight, bias)
    rewritten.returns(rewritten("Resize", small, "", scales, **options))
    return planted("upsample, then 1x1", "FPN, YOLO necks", given, rewritten)


def points_beside_filters() -> Planted:
    """A convolution of points and one of 3 x 3 of one image, side by side."""
    narrow, wide, a, b = weights(0, 32, 64, 1, 1), weights(1, 96, 64, 3, 3), weights(2, 32), weights(3, 96)
    given, rewritten = Network("given"), Network("rewritten")
    x = _image(given, 64)
    given.returns(given("Concat", given("Conv", x, narrow, a), given("Conv", x, wide, b, pads=PADS), axis=1))
    both = np.concatenate([_padded(narrow), wide])
    rewritten.returns(rewritten("Conv", _image(rewritten, 64), both, np.concatenate([a, b]), pads=PADS))
    return planted("1x1 beside 3x3", "TASO", given, rewritten)


def norm_before_filters() -> Planted:
    """A batch normalization before a convolution without padding."""
    weight, statistics = weights(0, 64, 64, 3, 3), batch_statistics(1, 64)
    given, rewritten = Network("given"), Network("rewritten")
    normal = given("BatchNormalization", _image(given, 64), *statistics, epsilon=EPSILON)
    given.returns(given("Conv", normal, weight))
    scale, shift = _as_scale_and_shift(statistics)
    own = weight * scale[:, None, None]
    bias = np.einsum("ocyx,c->o", weight, shift).astype(np.float32)
    rewritten.returns(rewritten("Conv", _image(rewritten, 64), own, bias))
    return planted("batch norm before 3x3", "pre-activation networks", given, rewritten)


def norm_before_padded_filters() -> Planted:
    """A batch normalization before a convolution with padding, which is not normalized."""
    weight, bias, statistics = weights(0, 64, 64, 3, 3), weights(2, 64), batch_statistics(1, 64)
    given, rewritten = Network("given"), Network("rewritten")
    normal = given("BatchNormalization", _image(given, 64), *statistics, epsilon=EPSILON)
    given.returns(given("Conv", normal, weight, bias, pads=PADS))
    scale, shift = _as_scale_and_shift(statistics)
    y = rewritten("Conv", _image(rewritten, 64), weight * scale[:, None, None], bias, pads=PADS)
    rewritten.returns(rewritten("Add", y, _border(weight, shift)))
    return planted("batch norm before a padded 3x3", "pre-activation networks", given, rewritten)


def points_of_one_image() -> Planted:
    """Three convolutions of points of one image, each with an activation, as Inception's branches begin."""
    images = [(48, 0), (64, 1), (32, 2)]
    ws = [weights(seed, filters, 128, 1, 1) for filters, seed in images]
    bs = [weights(seed + 9, filters) for filters, seed in images]
    given, rewritten = Network("given"), Network("rewritten")
    x = _image(given, 128, 14)
    given.returns(*(given("Relu", given("Conv", x, w, b)) for w, b in zip(ws, bs, strict=True)))
    y = rewritten("Conv", _image(rewritten, 128, 14), np.concatenate(ws), np.concatenate(bs))
    sizes = np.array([filters for filters, _ in images], np.int64)
    rewritten.returns(*rewritten.several("Split", 3, rewritten("Relu", y), sizes, axis=1))
    return planted("three 1x1 of one image", "TASO, TENSAT (Inception)", given, rewritten)


def points_after_average() -> Planted:
    """A mean over windows of many channels, before they become few, as in Inception's branch with a pool."""
    weight, bias = weights(0, 32, 256, 1, 1), weights(1, 32)
    options = {"kernel_shape": [3, 3], "pads": PADS, "strides": [1, 1]}
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("Conv", given("AveragePool", _image(given, 256), **options), weight, bias))
    y = rewritten("Conv", _image(rewritten, 256), weight, bias)
    rewritten.returns(rewritten("AveragePool", y, **options))
    return planted("average pool, then 1x1", "TASO, TENSAT (Inception)", given, rewritten)


PLANTED: tuple[Maker, ...] = (
    sum_of_convolutions,
    training_form,
    pool_after_points,
    points_after_points,
    filters_after_points,
    filters_after_shifted_points,
    points_after_upsampling,
    points_beside_filters,
    norm_before_filters,
    norm_before_padded_filters,
    points_of_one_image,
    points_after_average,
)
