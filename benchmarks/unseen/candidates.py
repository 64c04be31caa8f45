"""How the compiler schedules a program, and what the processes time; factories as in benchmarks/candidates.py.

Tilewright's kernels come as artifacts, so that a search is over before anything is timed. PyTorch's functions run in
inference mode, torch.compile's as one graph of fixed shapes. All take the same arrays, on aligned memory.
"""

from tilewright import te
from tilewright.cost.analytic import schedule
from tilewright.runtime.loading import load
from tilewright.runtime.memory import aligned_copy
from tilewright.target.target import Target

from ..candidates import Feeds, Session, load_feeds
from .programs import Outputs


def analytic(outputs: Outputs) -> te.TeSchedule:
    """The compiler's own choice; nothing is measured."""
    return te.autoschedule(outputs)


def by_class(outputs: Outputs) -> te.TeSchedule:
    """What the analytic model makes of the classes of kernels that it knows, without sketches."""
    made = te.create_schedule(outputs)
    return made.scheduled(schedule(made.schedule, Target.host()))


def searched(outputs: Outputs, minutes: float, threads: int) -> te.TeSchedule:
    """The best that is found in so many minutes of measuring what sketches make of the program."""
    return te.autoschedule(outputs, minutes=minutes, space="sketches", threads=threads)


def artifact(path: str, feeds: str, threads: int) -> Session:
    """A kernel that was saved by the runner."""
    kernel = load(path, trust=True, threads=threads)
    return Session(lambda inputs: kernel.run(None, inputs), _aligned(feeds))


def torch_eager(program: str, feeds: str, threads: int) -> Session:
    """PyTorch, operator by operator."""
    return _torch(program, feeds, threads, compiled=False)


def torch_compile(program: str, feeds: str, threads: int) -> Session:
    """PyTorch's own compiler. Raises RuntimeError if it did not compile all of the program as one graph."""
    import torch._dynamo.utils

    session = _torch(program, feeds, threads, compiled=True)
    session()
    counters = torch._dynamo.utils.counters
    if counters["stats"]["unique_graphs"] != 1 or counters["graph_break"]:
        raise RuntimeError(f"torch.compile did not compile one whole graph: {dict(counters)}")
    return session


def _torch(program: str, feeds: str, threads: int, *, compiled: bool) -> Session:
    import torch

    from . import in_torch

    torch.set_num_threads(threads)
    written = getattr(in_torch, program)
    function = torch.compile(written, fullgraph=True, dynamic=False) if compiled else written

    def infer(inputs: Feeds) -> list[object]:
        with torch.inference_mode():
            return [made.numpy() for made in function(**{n: torch.from_numpy(a) for n, a in inputs.items()})]

    return Session(infer, _aligned(feeds))


def _aligned(feeds: str) -> Feeds:
    return {name: aligned_copy(array) for name, array in load_feeds(feeds).items()}
