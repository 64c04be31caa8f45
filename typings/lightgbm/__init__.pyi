"""The part of LightGBM 4.7 that Tilewright uses, typed (its own annotations are partly unknown)."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Array: TypeAlias = NDArray[np.float64]
_Settings: TypeAlias = Mapping[str, bool | float | str]

class Dataset:
    def __init__(
        self,
        data: _Array,
        label: _Array | None = None,
        *,
        init_score: _Array | None = None,
        params: _Settings | None = None,
    ) -> None: ...
    def create_valid(
        self, data: _Array, *, init_score: _Array | None = None, params: _Settings | None = None
    ) -> Dataset: ...

class Booster:
    def __init__(
        self, params: _Settings | None = None, train_set: Dataset | None = None, *, model_str: str | None = None
    ) -> None: ...
    def model_to_string(self) -> str: ...
    def add_valid(self, data: Dataset, name: str) -> Booster: ...
    def update(self, *, fobj: Callable[[_Array, Dataset], tuple[_Array, _Array]]) -> bool: ...
    def eval_valid(
        self, feval: Callable[[_Array, Dataset], tuple[str, float, bool]]
    ) -> list[tuple[str, str, float, bool]]: ...
    def predict(self, data: _Array, *, num_threads: int) -> _Array: ...
