# The part of Matplotlib that report/charts.py uses.
from contextlib import AbstractContextManager

def rc_context(rc: dict[str, object]) -> AbstractContextManager[None]: ...
