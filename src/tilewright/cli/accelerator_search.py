"""``tilewright accelerator search``: the configuration with which a network takes least time, within an area."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.outputs import check_output
from tilewright.base.settings import Settings
from tilewright.cli.accelerator_options import add_design, add_family, design_of, family_of
from tilewright.cli.options import file_path, positive
from tilewright.cli.output import emit
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.backend.vta.config_file import Design
    from tilewright.backend.vta.synthesis.area import Area
    from tilewright.backend.vta.synthesis.families import Family
    from tilewright.codesign import Network, Rated

_LAYERS = "ResNet-18"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For which network, within what area, and where to write the best configuration."""
    said = f"a quantized ONNX file (default: the convolutions of {_LAYERS} but the first)"
    parser.add_argument("model", type=file_path, nargs="?", help=said)
    add_family(parser)
    add_design(parser, "--base", "vta")
    bound = parser.add_mutually_exclusive_group()
    bound.add_argument(
        "--within", metavar="CONFIG", help="at most the area of a configuration (default: that of --base)"
    )
    bound.add_argument("--chip", metavar="NAME", help="at most what a chip has (see accelerator synthesize)")
    for name, what in (("luts", "look-up tables"), ("dsps", "multipliers"), ("rams", "blocks of memory")):
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=f"at most so many {what}")
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="images at once (default: 1)")
    said = "about how many configurations are compiled and rated (default: %(default)s)"
    parser.add_argument("--rated", type=positive, default=24, metavar="N", help=said)
    parser.add_argument("-o", "--output", type=file_path, metavar="FILE.json", help="the best one, for --accelerator")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Search, show the front, write the best configuration."""
    from tilewright.backend.vta.config import PRESETS
    from tilewright.backend.vta.config_file import write_config
    from tilewright.codesign import search
    from tilewright.codesign.space import Space

    if options.output is not None:
        check_output(options.output, [] if options.model is None else [options.model])
    base, family = design_of(options.base, options.bus), family_of(options.family)
    base = replace(base, config=replace(base.config, batch=options.batch)) if options.batch > 1 else base
    space = Space.of(base, family, _bound(options, base, family), square=options.model is not None)
    presets = [base.config, *(config for config in PRESETS.values() if config != base.config)]
    found = search(_network(options, base), space, presets, options.rated)
    if options.output is not None:
        best = found.best.design
        write_config(options.output, replace(best, config=replace(best.config, name=options.output.stem)))
    if options.json:
        told = {"action": "search", "model": None if options.model is None else str(options.model)}
        told |= {"family": family.name, "bound": asdict(space.bound), "screened": found.screened}
        told |= {"rated": len(found.rated), "front": [_told(item) for item in found.front]}
        emit({**told, "output": None if options.output is None else str(options.output)})
        return Status.DONE
    console.print(f"{family.name}, within {space.bound}:", highlight=False)
    console.print(_table(found.front, [item for item in found.rated if item.design.config in presets]))
    console.print(f"{found.screened} configurations were screened, {len(found.rated)} compiled", highlight=False)
    return Status.DONE


def _network(options: argparse.Namespace, base: "Design") -> "Network":
    from tilewright.codesign import RESNET18, LayerNetwork

    if options.model is None:
        return LayerNetwork(RESNET18)
    from tilewright.codesign.model import ModelNetwork
    from tilewright.frontend.opening import opened

    return ModelNetwork.of(opened(options.model).load({}, {}, Settings.from_environment().model_bytes), base)


def _bound(options: argparse.Namespace, base: "Design", family: "Family") -> "Area":
    """What is asked for, of each cell the smallest number."""
    from tilewright.backend.vta.synthesis.estimate import estimated

    if options.chip is not None:
        area = family.chip(options.chip).area
    else:
        area = estimated(base if options.within is None else design_of(options.within, options.bus), family)
    given = {name: getattr(options, name) for name in ("luts", "dsps", "rams") if getattr(options, name) is not None}
    return replace(area, **given)


def _told(rated: "Rated") -> dict[str, object]:
    design = rated.design
    own = {"config": asdict(design.config), "bus_bytes": design.bus_bytes, "area": asdict(rated.area)}
    return {**own, "share": rated.share, "cycles": rated.cycles, "microseconds": rated.microseconds}


def _table(front: "Sequence[Rated]", presets: "Sequence[Rated]") -> Table:
    from tilewright.codesign.space import SEARCHED, Blocks

    table = Table()
    table.add_column("")
    for heading in ("blocks", *(pad.name.lower() for pad in SEARCHED), "LUTs", "DSPs", "RAMs", "area", "cycles", "ms"):
        table.add_column(heading, justify="right")
    for item in (*front, *(preset for preset in presets if preset not in front)):
        config = item.design.config
        table.add_row(
            "best" if item is front[0] else "" if item in front and item not in presets else config.name,
            str(Blocks.of(config)),
            *(str(config.depth(pad)) for pad in SEARCHED),
            f"{item.area.luts:,}",
            str(item.area.dsps),
            str(item.area.rams),
            f"{item.share:.0%}",
            f"{item.cycles:,}",
            f"{item.microseconds / 1000:.2f}",
        )
    return table
