"""Settings of Dask."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

def set(arg: Mapping[str, object]) -> AbstractContextManager[object]: ...
