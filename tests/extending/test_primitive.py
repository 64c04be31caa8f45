"""A schedule primitive outside of the package: ``stripe.py``, given by its user or found as an entry point."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.extending.packages import HERE, install
from tests.extending.stripe import STRIPE, stripe
from tilewright import te
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.compilation import build_program
from tilewright.loops.interpreter import interpret
from tilewright.loops.program import Program
from tilewright.schedule import Schedule, Trace, replay
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks
from tilewright.schedule.user_primitive import GROUP, UserPrimitive
from tilewright.target.target import Target

N = 12
A, B = (np.random.default_rng(seed).integers(-9, 9, (N, N)).astype(np.float32) for seed in (1, 2))


def product() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    return a, b, te.compute((N, N), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")


def naive() -> Program:
    return te.create_schedule(product()[2]).program


def result(program: Program) -> NDArray[np.generic]:
    return interpret(program, {"A": A, "B": B})["C"]


def test_it_keeps_the_meaning() -> None:
    s = Schedule(naive())
    assert s.apply(STRIPE, "y", 4) == ()
    assert s.program != naive()
    np.testing.assert_array_equal(result(s.program), A @ B)
    made = build_program(s.program, Target.host(), threads=1)
    np.testing.assert_array_equal(made.run({"A": A, "B": B})[0], A @ B)


def test_every_iteration_runs_once_in_the_order_that_it_says() -> None:
    rows = te.placeholder((N,), name="A")
    s = te.create_schedule(te.compute((N,), lambda i: rows[i], name="C"))
    s.schedule.apply(STRIPE, "i", ways=3)
    assert "C[vi]" in str(s.program)
    assert "vi = i % 3 * 4 + i // 3" in str(s.program)


def test_the_notation_of_the_literature_has_it() -> None:
    c = product()[2]
    s = te.create_schedule(c)
    yo, _ = s[c].split(s[c].op.axis[0], 4)
    s[c].apply(STRIPE, yo, 3)
    s[c].apply(STRIPE, s[c].op.axis[1], 2)
    np.testing.assert_array_equal(result(s.program), A @ B)
    assert str(s.trace).count('s.apply("my_package.stripe"') == 2


def test_a_trace_replays_with_it() -> None:
    s = Schedule(naive(), primitives=[STRIPE])
    ways = s.sample_categorical((2, 3, 6))
    s.apply("my_package.stripe", LoopRef("y"), ways)
    s.split("y", (None, 4))
    trace = Trace.from_json(s.trace.to_json())
    assert trace == s.trace
    assert 's.apply("my_package.stripe", "y", d0)' in str(trace)
    assert replay(trace, naive(), primitives=[STRIPE]).program == s.program
    for decided in (2, 3, 6):
        other = Schedule(naive())
        other.apply(STRIPE, "y", decided)
        other.split("y", (None, 4))
        assert replay(trace, naive(), {0: (decided,)}, primitives=[STRIPE]).program == other.program
    with pytest.raises(ScheduleError, match=r"no primitive is called my_package\.stripe: give it by primitives="):
        replay(trace, naive())
    with pytest.raises(BadInput, match="that this version has not: stripe"):
        Trace.from_json(s.trace.to_json().replace("my_package.stripe", "stripe"))


def test_a_copy_knows_it() -> None:
    s = Schedule(naive())
    s.apply(STRIPE, "y", 2)
    s.copy().apply("my_package.stripe", "x", 2)
    assert len(s.trace.steps) == 1


def test_an_installed_one_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, GROUP, "stripe", "stripes_of_mine:STRIPE", HERE / "stripe.py")
    monkeypatch.syspath_prepend(tmp_path)
    s = Schedule(naive())
    s.apply("my_package.stripe", "y", 4)
    assert replay(s.trace, naive()).program == s.program


def broken(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Drops the block's predicate, bindings and all but its first axis."""
    (found,) = (one for one in all_blocks(program.body) if one.name == block.name)
    return replace(program, body=replace(found, bindings=found.bindings[:1])), None


def renames(program: Program) -> tuple[Program, None]:
    return replace(program, params=program.params[::-1]), None


def raises(program: Program) -> tuple[Program, None]:
    raise KeyError(program.name)


@pytest.mark.parametrize(
    ("primitive", "arguments", "text"),
    [
        (STRIPE, ("y", 5), "my_package.stripe.* is refused: 5 stripes do not divide 12 iterations"),
        (STRIPE, ("k", 4), "is refused"),
        (STRIPE, ("z", 4), "z"),
        (STRIPE, ("y",), "my_package.stripe: missing a required argument: 'ways'"),
        (UserPrimitive("my.broken", broken), ("C",), "what it makes is wrong"),
        (UserPrimitive("my.renames", renames), (), "what it makes"),
        (UserPrimitive("my.raises", raises), (), "it raised KeyError"),
        (UserPrimitive("my.program", lambda program: program), (), "it raised TypeError"),
        ("my.other", (), "no primitive is called my.other"),
    ],
)
def test_what_is_refused_changes_nothing(primitive: UserPrimitive, arguments: tuple[str, ...], text: str) -> None:
    s = Schedule(naive())
    with pytest.raises(ScheduleError, match=text):
        s.apply(primitive, *arguments)
    assert (s.program, s.trace) == (naive(), Trace())


def test_its_name_is_none_of_ours() -> None:
    with pytest.raises(BadInput, match=r"needs a name with a dot, as my_package\.split"):
        UserPrimitive("split", stripe)


def test_the_documentation_shows_the_file() -> None:
    assert (HERE / "stripe.py").read_text() in (HERE.parents[1] / "docs" / "extending.md").read_text()
