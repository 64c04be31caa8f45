"""An emulated AArch64 processor: Unicorn, with functions of machine code that it calls back.

Unicorn's Python binding calls back into Python only, so its library is called directly (``unicorn/unicorn.h``).
"""

import ctypes
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from unicorn import arm64_const, unicorn_const

from tilewright.base.errors import InternalError, Unsupported
from tilewright.runtime.memory import Pages

READ, WRITE, EXECUTE = 1, 2, 4
"""Rights to memory, as Unicorn has them."""
_STACK_AT, STACK_BYTES = 0x7F_0000_0000, 1 << 20
_RETURN_AT = 0x7E_0000_0000
"""Where functions return to: no code is there, so that the emulation ends."""
_LONG = ctypes.c_uint64


class Stopped(Exception):
    """The code has not come to its end: it took too long, or did what is not allowed."""


class _SystemRegister(ctypes.Structure):
    """``uc_arm64_cp_reg``."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("crn", "crm", "op0", "op1", "op2")),
        ("value", ctypes.c_uint64),
    )


class Emulator:
    """A processor without memory; ``map`` gives it some."""

    def __init__(self) -> None:
        self._library = _library()
        self._engine = ctypes.c_void_p()
        self._kept: list[Pages] = []
        opened = self._library.uc_open(
            unicorn_const.UC_ARCH_ARM64, unicorn_const.UC_MODE_ARM, ctypes.byref(self._engine)
        )
        self._require(opened, "start")
        # All features that it has: more than those of its usual processor.
        control = unicorn_const.UC_CTL_CPU_MODEL | 1 << 26 | unicorn_const.UC_CTL_IO_WRITE << 30
        model = ctypes.c_int(arm64_const.UC_CPU_ARM64_MAX)
        self._require(self._library.uc_ctl(self._engine, ctypes.c_uint32(control), model), "choose a processor")
        self._switch_on_vectors()
        self.map(_STACK_AT, Pages(STACK_BYTES), READ | WRITE)

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._library.uc_close(self._engine)
        self._kept.clear()

    def map(self, address: int, memory: Pages, rights: int) -> None:
        """Show ``memory`` at ``address``."""
        at = ctypes.c_void_p(memory.address)
        mapped = self._library.uc_mem_map_ptr(self._engine, _LONG(address), _LONG(memory.size), rights, at)
        self._require(mapped, "map memory")
        self._kept.append(memory)

    def on_block(self, function: int, state: Pages) -> None:
        """Call the function at the address ``function`` for each basic block, with that of ``state``."""
        self._hook(unicorn_const.UC_HOOK_BLOCK, function, state)

    def on_access(self, function: int, state: Pages) -> None:
        """The same for each access to memory."""
        self._hook(unicorn_const.UC_HOOK_MEM_READ | unicorn_const.UC_HOOK_MEM_WRITE, function, state)

    @property
    def stop(self) -> int:
        """The address of the function that stops the emulator, which is its argument."""
        return ctypes.cast(self._library.uc_emu_stop, ctypes.c_void_p).value or 0

    def begin(self, function: int, arguments: Sequence[int]) -> None:
        """A call of the function at this address, which ``go`` runs."""
        registers = {arm64_const.UC_ARM64_REG_SP: _STACK_AT + STACK_BYTES // 2}
        registers |= {arm64_const.UC_ARM64_REG_X30: _RETURN_AT, arm64_const.UC_ARM64_REG_PC: function}
        registers |= {arm64_const.UC_ARM64_REG_X0 + place: value for place, value in enumerate(arguments)}
        for register, value in registers.items():
            self._write(register, value)

    def go(self, seconds: float) -> int | None:
        """The result of the call; None if it was stopped before, and ``go`` goes on.

        Raises ``Stopped`` if it does what it may not, or takes longer.
        """
        at, limit = _LONG(self._read(arm64_const.UC_ARM64_REG_PC)), _LONG(max(1, int(seconds * 1e6)))
        begin = time.monotonic()
        fault = self._library.uc_emu_start(self._engine, at, _LONG(_RETURN_AT), limit, ctypes.c_size_t(0))
        if fault:
            raise Stopped(_text(self._library.uc_strerror(fault)))
        if self._read(arm64_const.UC_ARM64_REG_PC) == _RETURN_AT:
            return self._read(arm64_const.UC_ARM64_REG_X0)
        if time.monotonic() - begin >= seconds:
            raise Stopped(f"it takes more than {seconds:.0f} s")
        return None

    def _switch_on_vectors(self) -> None:
        """Those of SVE are off at first, in CPTR_EL3 and CPACR_EL1. They have 128 bits."""
        for register in (_SystemRegister(1, 1, 3, 6, 2, 1 << 8), _SystemRegister(1, 0, 3, 0, 2, 3 << 20 | 3 << 16)):
            at = ctypes.byref(register)
            written = self._library.uc_reg_write(self._engine, arm64_const.UC_ARM64_REG_CP_REG, at)
            self._require(written, "write a system register")

    def _write(self, register: int, value: int) -> None:
        written = self._library.uc_reg_write(self._engine, register, ctypes.byref(_LONG(value)))
        self._require(written, "write a register")

    def _read(self, register: int) -> int:
        value = _LONG()
        self._require(self._library.uc_reg_read(self._engine, register, ctypes.byref(value)), "read a register")
        return value.value

    def _hook(self, kind: int, function: int, state: Pages) -> None:
        handle = ctypes.c_size_t()
        everywhere = _LONG(1), _LONG(0)
        code, data = ctypes.c_void_p(function), ctypes.c_void_p(state.address)
        hooked = self._library.uc_hook_add(self._engine, ctypes.byref(handle), kind, code, data, *everywhere)
        self._require(hooked, "watch")
        self._kept.append(state)

    def _require(self, code: int, what: str) -> None:
        if code:
            raise InternalError(f"the emulator can't {what}: {_text(self._library.uc_strerror(code))}")


def _library() -> ctypes.CDLL:
    """Raises ``Unsupported`` if it is not where its wheels have it."""
    found = find_spec("unicorn")
    folders = [] if found is None else found.submodule_search_locations or []
    paths = [path for folder in folders for path in sorted(Path(folder, "lib").glob("libunicorn*"))]
    shared = [path for path in paths if path.suffix != ".a"]
    if not shared:
        raise Unsupported('simulated cycles need the library of Unicorn: pip install "tilewright[simulation]"')
    library = ctypes.CDLL(str(shared[0]))
    library.uc_strerror.restype = ctypes.c_char_p
    return library


def _text(message: object) -> str:
    return message.decode() if isinstance(message, bytes) else str(message)
