"""The rules that come with the compiler.

``algebra.rules`` always run: what they make is never slower. ``search.rules`` are for who knows what things cost: they
may well make a model slower. So are ``generated.rules``, which nobody wrote: ``rules generate --depth 3 --outputs 2``
found them, ``rules prune --search --operations 5`` kept them, and a test makes the file anew. A new file of rules is a
line here.
"""

from functools import lru_cache
from importlib.resources import files

from tilewright.passes.rules.terms import Rule
from tilewright.passes.rules.text import parse_rules

ALGEBRA = "algebra.rules"
SEARCH = "search.rules"
GENERATED = "generated.rules"


@lru_cache(maxsize=4)
def load_rules(name: str) -> tuple[Rule, ...]:
    """The rules of the file ``name`` beside this one, in its order."""
    return tuple(parse_rules(files(__package__ or "").joinpath(name).read_text("utf-8")))
