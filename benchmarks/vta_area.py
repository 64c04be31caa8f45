"""Areas of the accelerator by Yosys, and the model that is fitted to them: `python -m benchmarks.vta_area`.

Small configurations are synthesized (`tilewright accelerator synthesize`; seconds to minutes each), the numbers of
`backend/vta/synthesis/estimate.py` are fitted to their look-up tables and flip-flops, and printed; then all
configurations, and those of `--check`, which the fit has not seen, with what the model says beside what Yosys counts.
Nothing is timed.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields

import numpy as np
from scipy.optimize import nnls

from tilewright.backend.vta.config import TINY, VTA, Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.estimate import FITTED, Features, estimated, features
from tilewright.backend.vta.synthesis.families import FAMILIES, Family
from tilewright.backend.vta.synthesis.synthesized import synthesized


def sized(name: str, blocks: tuple[int, int, int], depths: tuple[int, int, int, int], bus: int = 8) -> Design:
    """A configuration by batch, block_in and block_out, and the tiles of uop, inp, wgt and acc."""
    batch, block_in, block_out = blocks
    uop, inp, wgt, acc = depths
    config = Config(
        name,
        batch,
        block_in,
        block_out,
        uop_bytes=4 * uop,
        inp_bytes=inp * batch * block_in,
        wgt_bytes=wgt * block_in * block_out,
        acc_bytes=acc * batch * block_out * 4,
    )
    return Design(config, bus)


FITTED_TO = (
    sized("small", (1, 2, 2), (256, 256, 256, 256), 4),
    Design(TINY),
    sized("wide", (1, 8, 2), (512, 512, 512, 512)),
    sized("tall", (1, 2, 8), (512, 512, 512, 512)),
    sized("bus", (1, 4, 4), (512, 512, 512, 512), 16),
    sized("eight", (1, 8, 8), (2048, 1024, 512, 1024)),
)
CHECKED = (sized("between", (1, 4, 8), (1024, 2048, 1024, 1024)),)
LARGEST = (Design(VTA),)


def fitted(designs: Sequence[Design], areas: Sequence[Area]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The numbers for look-up tables and flip-flops with the least relative errors; none is negative."""
    parts = np.array([astuple(features(design)) for design in designs])
    found: list[tuple[float, ...]] = []
    for counted in ([area.luts for area in areas], [area.flip_flops for area in areas]):
        numbers, _ = nnls(parts / np.array(counted)[:, None], np.ones(len(counted)))
        found.append(tuple(round(float(number), 2) for number in numbers))
    return found[0], found[1]


def rows(designs: Iterable[Design], areas: Iterable[Area], family: Family) -> Iterable[str]:
    """What Yosys counts, and by how much the model is off."""
    for design, area in zip(designs, areas, strict=True):
        config, model = design.config, estimated(design, family)
        blocks = f"{config.batch} x {config.block_in} x {config.block_out}"
        off = f"{model.luts / area.luts - 1:>+8.1%}{model.flip_flops / area.flip_flops - 1:>+8.1%}"
        counts = f"{area.luts:>8}{area.flip_flops:>8}{area.dsps:>6}{area.rams:>6}"
        yield f"{config.name:<10}{blocks:<14}{counts}{off}{model.dsps - area.dsps:>+6}{model.rams - area.rams:>+6}"


def main(arguments: list[str] | None = None) -> None:
    """Print the numbers and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vta_area", description=__doc__)
    parser.add_argument("--family", choices=list(FAMILIES), default="ecp5", help="default %(default)s")
    parser.add_argument("--check", action="store_true", help="also configurations that the fit has not seen")
    parser.add_argument("--largest", action="store_true", help="also VTA, of 256 products; takes long")
    options = parser.parse_args(arguments)
    family = FAMILIES[options.family]
    areas: list[Area] = []
    for design in FITTED_TO:
        areas.append(synthesized(design, family).area)
        print(f"{design.config.name}: {areas[-1]}", flush=True)
    luts, flip_flops = fitted(FITTED_TO, areas)
    print("features:  ", ", ".join(field.name for field in fields(Features)))
    print("luts:      ", luts)
    print("flip_flops:", flip_flops)
    print("in use:    ", FITTED[family.name].luts, FITTED[family.name].flip_flops)
    print(f"{'':<24}{'LUTs':>8}{'FFs':>8}{'DSPs':>6}{'RAMs':>6}   model:  LUTs    FFs  DSPs  RAMs")
    for line in rows(FITTED_TO, areas, family):
        print(line, flush=True)
    others = (CHECKED if options.check else ()) + (LARGEST if options.largest else ())
    for design in others:
        for line in rows((design,), (synthesized(design, family).area,), family):
            print(line, flush=True)


if __name__ == "__main__":
    main()
