"""Operators that are named on the command line: where a Python module defines them."""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from tilewright.base.errors import BadInput

if TYPE_CHECKING:
    from tilewright.frontend.onnx.read.foreign import OnnxOperator


def operators_of(names: Sequence[str]) -> "tuple[OnnxOperator, ...]":
    """The operators of ``--operators``: each name is ``module:NAME``, of one operator or of several in a list.

    Modules are imported as Python finds them, or from the current folder.

    Raises ``BadInput`` for a name of another form, a module that can't be imported, and what is no operator.
    """
    return tuple(operator for name in names for operator in _named(name))


def _named(name: str) -> "Iterator[OnnxOperator]":
    from tilewright.frontend.onnx.read.foreign import OnnxOperator

    module, separator, attribute = name.partition(":")
    if not separator or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise BadInput(f"--operators {name}: write module:NAME, such as my_package.operators:SWISH")
    found = _attribute(name, module, attribute)
    several = isinstance(found, list | tuple)
    given = cast("Sequence[object]", found) if several else (found,)
    for one in given:
        if not isinstance(one, OnnxOperator):
            kind = type(one).__name__
            raise BadInput(f"--operators {name}: it is a {kind}, not an OnnxOperator: see docs/own-operators.md")
        yield one


def _attribute(name: str, module: str, attribute: str) -> object:
    sys.path.append(os.getcwd())
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing a module may raise anything
        raise BadInput(f"--operators {name}: it can't be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop()
    return found
