"""User-defined primitives: functions from program to program, as steps of traces.

    STRIPE = UserPrimitive("my_package.stripe", stripe)     # stripe(program, loop: LoopRef, ways: int)
    s.apply(STRIPE, "i", 4)

The function works like a built-in primitive: it checks first, refuses by ``raise refuse(reason, place)``, and returns
the new program and the handles that it made. Its author must ensure that it preserves semantics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TypeAlias, get_type_hints

from tilewright.base.errors import BadInput, BadProgram
from tilewright.base.names import shown
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.schedule.trace import Argument, Sampled
from tilewright.schedule.tree import BlockRef, Handle, LoopRef, Refusal, refuse

GROUP = "tilewright.primitives"
"""Group of entry points."""
Made: TypeAlias = Handle | tuple[Handle, ...] | None


@dataclass(frozen=True, slots=True)
class UserPrimitive:
    """``function(program, *arguments, **options)`` returns a program and handles; ``name`` is its name in traces.

    The name contains a dot, to differ from built-in ones. Parameters annotated as ``LoopRef`` or ``BlockRef`` also take
    names.
    """

    name: str
    function: Callable[..., tuple[Program, Made]]

    def __post_init__(self) -> None:
        if "." not in self.name:
            raise BadInput(f"the primitive {shown(self.name)} needs a name with a dot, as my_package.{self.name}")

    def called(self, program: Program, arguments: Sequence[Argument], options: Mapping[str, Argument]) -> "Call":
        """The bound arguments, with handles for names. Raises ``Refusal`` for too many or missing arguments."""
        try:
            bound = signature(self.function).bind(program, *arguments, **options)
            kinds = get_type_hints(self.function)
        except (TypeError, NameError) as error:
            raise refuse(f"{self.name}: {error}") from error
        names = [name for name in signature(self.function).parameters if name in bound.arguments]
        positional = [_handle(kinds.get(name), value) for name, value in zip(names[1:], arguments, strict=False)]
        named = {name: _handle(kinds.get(name), value) for name, value in options.items()}
        return Call(self, (*positional, *arguments[len(positional) :]), named)


@dataclass(frozen=True, slots=True)
class Call:
    """A primitive and its arguments."""

    primitive: UserPrimitive
    arguments: tuple[Argument, ...]
    options: Mapping[str, Argument]

    def run(self, program: Program) -> tuple[Program, tuple[Handle, ...]]:
        """Apply it to ``program``. Raises ``Refusal``, also if the result is not a program on the same arrays."""
        try:
            after, made = self._made(program)
        except (Refusal, BadInput):
            raise
        except Exception as error:
            raise refuse(f"it raised {type(error).__name__}: {error}") from error
        try:
            verify(after)
        except BadProgram as error:
            raise refuse(f"what it makes is wrong: {error}") from error
        if (after.params, after.results) != (program.params, program.results):
            raise refuse("what it makes has other parameters or results")
        return after, made if isinstance(made, tuple) else () if made is None else (made,)

    def _made(self, program: Program) -> tuple[Program, Made]:
        options = {name: _plain(value) for name, value in self.options.items()}
        return self.primitive.function(program, *map(_plain, self.arguments), **options)


def _plain(value: Argument) -> Argument:
    """The arguments with sampled numbers marked as such."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.value if isinstance(value, Sampled) else value


def _handle(kind: object, value: Argument) -> Argument:
    if isinstance(value, str) and kind is LoopRef:
        return LoopRef(value)
    return BlockRef(value) if isinstance(value, str) and kind is BlockRef else value
