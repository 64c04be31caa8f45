"""The built-in rules.

``algebra.rules`` always run: their results are never slower. ``search.rules`` are for a search with a cost model:
they may make a model slower. So may ``integers.rules``, for quantized graphs, and ``generated.rules``, which three
commands write (``docs/appendix/searches.md``). Add new files of rules here.
"""

from functools import lru_cache
from importlib.resources import files

from tilewright.passes.rules.terms import Rule
from tilewright.passes.rules.text import parse_rules

ALGEBRA = "algebra.rules"
SEARCH = "search.rules"
GENERATED = "generated.rules"
INTEGERS = "integers.rules"


@lru_cache(maxsize=8)
def load_rules(name: str) -> tuple[Rule, ...]:
    """The rules of the file ``name`` in this folder, in order."""
    return tuple(parse_rules(files(__package__ or "").joinpath(name).read_text("utf-8")))
