"""The driver shows what each stage makes, once, in the order in which the stages are listed."""

from pathlib import Path

from tests.passes.graphs import apply, value
from tilewright.base.settings import Stage
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.target.target import Target

ROOT = Path(__file__).parents[1]


def test_every_stage_is_shown() -> None:
    x = value("x", 4)
    node = apply("Relu", [x], "y")
    shown: list[Stage] = []
    services = Services(watch=lambda stage, _: shown.append(stage))
    compile_graph(Graph("g", (x,), node.outputs, (node,), {}), Options(Target.host()), services)
    assert shown == [stage for stage in Stage if stage is not Stage.SUPEROPT]  # only where it is asked for


def test_every_stage_is_documented() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    told = page.replace("\n", " ").replace(" (if it is asked for)", "")
    assert ", ".join(f"`{stage.value}`" for stage in Stage) in told
