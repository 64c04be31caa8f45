"""``ComposedModel``: the base of models that are made of others, and have no single artifact of their own."""

from typing import NoReturn

from tilewright.base.checks import Checks
from tilewright.base.errors import Unsupported
from tilewright.base.numerics import Math, Precision
from tilewright.compilation import Options
from tilewright.model import CompiledModel


class ComposedModel(CompiledModel):
    """A model whose parts or versions are compiled models. What it says of itself is what it was compiled with."""

    def __init__(self, options: Options) -> None:
        """``options``: those of all its models."""
        self._options = options
        self._pickled = None
        self.signer = None

    @property
    def options(self) -> Options:
        return self._options

    @property
    def math(self) -> Math:
        return self._options.math

    @property
    def precision(self) -> Precision:
        return self._options.precision

    @property
    def checks(self) -> Checks:
        return self._options.checks

    def emit(self, *_: object, **_named: object) -> NoReturn:
        """Raises ``Unsupported``: it is made of several models."""
        raise Unsupported(
            "what ships without Python is one model, and this is made of several (explain says why); give the sizes by "
            "shapes= or --shape, or save an artifact"
        )
