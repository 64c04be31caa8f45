"""Small computations, forty and more, whose sketches are sampled."""

from collections.abc import Callable
from functools import partial

from benchmarks.unseen.programs import PROGRAMS, Outputs
from tests.sketch import operators, programs
from tilewright.base.dtypes import bf16, f32, i8, i32, u8
from tilewright.tensor.ir import Tensor

DIVISOR = 8
"""Of the sizes of ``benchmarks/unseen``."""
SMALLER = {
    "attention_scores": {"length": 12, "heads": 2, "depth": 4},
    "correlation": {"channels": 4, "size": 6, "reach": 1},
    "triangular_solves": {"batch": 4, "columns": 8},
    "wave3d": {"size": 6},
}
"""The sizes of those whose samples would take seconds each, as LLVM compiles what is written out of them."""

_KNOWN: dict[str, Callable[[], Tensor]] = {
    "product": partial(programs.matmul, 12, 48, 20),
    "long sums": partial(programs.matmul, 4, 4, 64),
    "two products": partial(programs.two_products, 12, 8, 20),
    "convolution": partial(programs.convolution, 6, 4, 16),
    "pooling": partial(programs.max_pool, 9, 3),
    "least": partial(programs.least, 5, 96),
    "softmax": partial(programs.softmax, 5, 36),
    "sum": partial(programs.everything_summed, 12, 40),
    "norm": partial(programs.norm, 16),
    "product of rows": partial(programs.product_of_rows, 12, 24, 40),
    "outer products": partial(programs.outer_products, 12, 40),
    "smoothed twice": partial(programs.smoothed_twice, 13, 30),
    "winograd": partial(programs.winograd, 4, 2, 4),
    "bytes": partial(programs.dot_product, 8, 32, 24, u8, i8, i32),
    "bfloats": partial(programs.dot_product, 8, 32, 24, bf16, bf16, f32),
}
_OPERATORS = {name: partial(operators.BUILDERS[name], 2, *sizes) for name, sizes in operators.SMALL.items()}
_UNSEEN = {
    name: partial(program.build, **SMALLER[name]) if name in SMALLER else partial(program.outputs, DIVISOR)
    for name, program in PROGRAMS.items()
}


def outputs(name: str) -> Tensor | Outputs:
    """The results of a computation."""
    return {**_KNOWN, **_OPERATORS, **_UNSEEN}[name]()


NAMES = (*_KNOWN, *_OPERATORS, *_UNSEEN)
