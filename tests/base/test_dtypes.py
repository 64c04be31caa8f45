"""Scalar types: one instance of each, which is compared by identity."""

import copy
import pickle

import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType


@pytest.mark.parametrize("dtype", dtypes.STORED, ids=str)
def test_there_is_one_instance_of_each(dtype: DType) -> None:
    """Whoever makes, copies or reads one has that of the module, with all that it says of itself."""
    facts = dict(vars(dtype))
    for other in (DType(dtype.kind, dtype.bits), copy.deepcopy(dtype), pickle.loads(pickle.dumps(dtype))):
        assert other is dtype
    assert {name: value for name, value in vars(dtype).items() if name != "numpy"} == {
        name: value for name, value in facts.items() if name != "numpy"
    }


def test_types_differ_by_kind_or_width() -> None:
    assert len(set(dtypes.STORED)) == len(dtypes.STORED)
    assert len({(dtype.kind, dtype.bits) for dtype in dtypes.STORED}) == len(dtypes.STORED)
