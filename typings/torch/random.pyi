from collections.abc import Sequence
from contextlib import AbstractContextManager

def fork_rng(devices: Sequence[int]) -> AbstractContextManager[None]: ...
