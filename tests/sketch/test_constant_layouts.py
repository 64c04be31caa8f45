"""Constants are stored in the order in which a schedule reads them: a decision of sketches, checked as all others."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tests.passes.networks import constant, conv
from tests.sketch import operators, programs
from tests.sketch.test_packing import ONE_CORE, decided
from tilewright import te
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadInput, BadProgram, ScheduleError
from tilewright.base.events import ignore
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Value, evaluate_graph
from tilewright.kernels.packing import stored_by
from tilewright.loops.identity import identity
from tilewright.loops.interpreter import interpret
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program, with_constants
from tilewright.measure.build import Builder, RefusedError
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.measure.workload import draw, load
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.sketch.packing import STORED
from tilewright.space.knobs import Value as Decision
from tilewright.space.space import Space
from tilewright.tensor.ir import Tensor, inputs_of
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import named, recorded


def spaces(output: Tensor, *constants: str) -> list[Space]:
    """Of all sketches, where the inputs called so are constants."""
    return spaces_of(with_constants(programs.naive(output), constants))


def spaces_of(naive: Program) -> list[Space]:
    return [space for _, space in sketch_spaces(naive, ONE_CORE)]


def samples(spaces: Sequence[Space], count: int) -> Iterator[Schedule]:
    """Random candidates that store every constant that they may."""
    random = np.random.default_rng(0)
    for space in spaces:
        wanted = {place for place, knob in enumerate(space.knobs) if STORED in knob.values and ".pack." in knob.name}
        for digits in space.sample(count, random) if wanted else ():
            for place in wanted:
                digits[place] = space.knobs[place].values.index(STORED)
            try:
                yield space.schedule(digits)
            except ScheduleError:
                continue


def dense(inner: int = 64, columns: int = 64) -> tuple[Tensor, Schedule]:
    """A product with the rows of constant weights, in two panels of columns."""
    output = programs.product_of_rows(8, columns, inner)
    space = spaces(output, "B")[-1]
    sizes: dict[str, Decision] = {
        "C_vi": (1, 2, 1, 4),
        "C_vj": (2, 1, 1, columns // 2),
        "C_vk": (inner // 2, 2),
    }
    return output, space.schedule(space.digits(decided(space, **sizes, C_pack_B=STORED)))


def test_what_is_stored_is_told() -> None:
    """In the trace, and in the program, which is parsed back, and is the same computation."""
    _, schedule = dense()
    assert 's.transform_layout("C", "B", "d0, d1 -> d0 // 32, d1, d0 % 32")' in str(schedule.trace)
    assert 'layout.B = "d0, d1 -> d0 // 32, d1, d0 % 32"' in str(schedule.program)
    assert parse_program(str(schedule.program)) == schedule.program
    naive = programs.naive(programs.product_of_rows(8, 64, 64))
    assert identity(with_constants(naive, ["B"])) == identity(naive)


def test_nothing_is_gathered_from_what_is_stored() -> None:
    output, schedule = dense()
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    whole = te.create_schedule(output, constants=[t for t in inputs_of(output.op) if t.name == "B"])
    kernel = te.build(whole.scheduled(schedule), threads=1, constants={"B": weights})
    assert "masked.gather" not in kernel.llvm
    assert [spec.name for spec in kernel.inputs] == ["A"]
    assert kernel.check()["C"].worst < 1e-5
    data = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_allclose(kernel(data), data @ weights.T, rtol=1e-4, atol=1e-4)
    small = te.build(dense(4, 16)[1], threads=1, constants={"B": weights[:16, :4].copy()})
    assert small.check()["C"].worst < 1e-5


COMPUTATIONS = {
    "rows": (programs.product_of_rows(2, 24, 12), "B"),
    "convolution": (programs.convolution(4, 2, 8), "W"),
    "transposed": (operators.BUILDERS["T2D"](1, 2, 2, 2, 8, 4, 2, 1), "w"),
    "groups": (operators.BUILDERS["GRP"](1, 2, 2, 8, 16, 3, 1, 1), "w"),
}


def panels() -> Tensor:
    """Weights that come in panels already, as the compiler packs those of a model."""
    a, b = te.placeholder((2, 12), name="A"), te.placeholder((2, 12, 16), name="B")
    k = te.reduce_axis((0, 12), "k")
    return te.compute((2, 32), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="C")


@pytest.mark.parametrize(
    ("output", "weights"), [*COMPUTATIONS.values(), (panels(), "B")], ids=[*COMPUTATIONS, "panels"]
)
def test_samples(output: Tensor, weights: str) -> None:
    """They compute what the naive program does; nearly all store the weights otherwise."""
    naive = programs.naive(output)
    feeds = draw(naive, 0)
    expected = interpret(naive, feeds)
    found = [*samples(spaces(output, weights)[:2], 2)]
    for schedule in found:
        results = interpret(schedule.program, stored_by(schedule.program, feeds))
        for name, array in expected.items():
            np.testing.assert_allclose(results[name], array, rtol=1e-3, atol=1e-3)
    assert sum(bool(schedule.program.layout(weights)) for schedule in found) >= len(found) / 2 > 1, found


def test_others_than_constants_keep_their_layouts() -> None:
    output = programs.product_of_rows(8, 64, 64)
    for space in spaces(output):
        assert not any(STORED in knob.values for knob in space.knobs if ".pack." in knob.name)
    s = Schedule(with_constants(programs.naive(output), ["B"]))
    with pytest.raises(ScheduleError, match="declare it constant"):
        s.transform_layout("C", "A", "i, k -> k, i")
    s.transform_layout("C", "B", "j, k -> k, j")
    with pytest.raises(ScheduleError, match="`j, k -> k, j` already"):
        s.transform_layout("C", "B", "k, j -> j, k")


def test_wrong_constants_are_refused() -> None:
    output, schedule = dense()
    with pytest.raises(BadInput, match=r"stores B as .*constants=\{'B': array\}"):
        te.build(schedule)
    with pytest.raises(BadInput, match="constants= has W; the inputs are A, B"):
        te.build(schedule, constants={"W": np.zeros(3, np.float32)})
    with pytest.raises(BadFeed, match="give a NumPy array of f32"):
        te.build(schedule, constants={"B": np.zeros((64, 64))})
    with pytest.raises(BadFeed, match="can't be stored as"):
        te.build(schedule, constants={"B": np.zeros((64, 32), np.float32)})
    with pytest.raises(BadProgram, match="no input of the program"):
        te.create_schedule(output, constants=[output])


def job_of(naive: Program, schedule: Schedule) -> Job:
    return Job(str(naive), schedule.trace.to_json(), str(ONE_CORE))


def test_what_is_measured_gets_its_constants_as_it_wants_them() -> None:
    _, schedule = dense()
    job = job_of(with_constants(programs.naive(programs.product_of_rows(8, 64, 64)), ["B"]), schedule)
    workload = load(job.program, 0, ONE_CORE)
    kernel = Builder(1 << 30).build(job).executable(1)
    (result,) = kernel.run(workload.stored_for(job.trace).inputs)
    assert workload.fault({"C": result}) == ""
    assert workload.stored_for('{"version": 1, "steps": []}') is workload
    with pytest.raises(RefusedError, match="apart"):
        workload.stored_for(job.trace.replace("d0 // 32", "d0 // 64"))


class _Bench:
    """Everything is fast."""

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            yield job, Outcome(Verdict.OK, times_us=(1.0,))


def model() -> Graph:
    """A convolution, and a product; both with weights."""
    known: dict[Value, Array] = {}
    x, y = value("x", 1, 8, 6, 6), value("y", 5, 24)
    nodes = (conv(known, x, 16, "a"), apply("MatMul", [y, constant(known, 24, 64)], "b"))
    return Graph("g", (x, y), tuple(node.outputs[0] for node in nodes), nodes, known)


def test_compile_stores_the_weights_of_a_model_so(tmp_path: Path) -> None:
    options = Options(ONE_CORE, threads=1)
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        for kernel in compile_graph(model(), options).kernels:
            naive = with_constants(named(kernel.naive), kernel.constants)
            found = [s for s in samples(spaces_of(naive), 2) if any(map(s.program.layout, kernel.constants))]
            if found:
                Measurer(_Bench(), records, session).measure([job_of(naive, found[0])], state=State.CONFIRMED)
    with recorded(tmp_path / "r.db", ONE_CORE, 1, ignore) as tuned:
        made = compile_graph(model(), options, Services(tuned=tuned))
    assert sum(any(map(kernel.program.layout, kernel.constants)) for kernel in made.kernels) == 2
    random = np.random.default_rng(0)
    feeds = {v.name: random.standard_normal([int(str(e)) for e in v.shape]).astype(np.float32) for v in model().inputs}
    for one, other in zip(made.executable.run(feeds), evaluate_graph(model(), feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
