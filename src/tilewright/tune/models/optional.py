"""Imports of optional packages that only some models need."""

import importlib

from tilewright.base.errors import BadInput


def require(package: str, extra: str) -> None:
    """Raise ``BadInput``, which says what to install, unless ``package`` can be imported; ``extra`` contains it."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise BadInput(f"{package} is not installed: pip install 'tilewright[{extra}]'") from error
