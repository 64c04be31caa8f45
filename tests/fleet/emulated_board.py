"""A board with an ARM processor: ``emulated_board.py PROGRAM WORD ...`` runs a static program on its own streams.

It knows the system calls of agents and of the programs that they become. Emulated time is this machine's.
"""

import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import unicorn
from unicorn import arm64_const as arm

PAGE = 4096
STACK, STACK_BYTES = 0x7F_0000_0000, 1 << 20
ROOM = 0x60_0000_0000
REGISTERS = tuple(getattr(arm, f"UC_ARM64_REG_X{number}") for number in range(9))
NO_SUCH_CALL = -38


class Board:
    """One process; ``files``: in memory."""

    def __init__(self) -> None:
        self.files: list[bytearray] = []
        self.next: bytes | None = None
        self.room = ROOM

    def run(self, program: bytes, words: Sequence[str]) -> int:
        """Its exit code, or that of what it becomes."""
        while True:
            self.next = None
            code = self._run(program, words)
            if self.next is None:
                return code
            program = self.next

    def _run(self, program: bytes, words: Sequence[str]) -> int:
        engine = loaded(program, words)
        codes: list[int] = []

        def called(_: object, cause: int, *_more: object) -> None:
            if cause != 2:
                codes.append(-1)
                engine.emu_stop()
                return
            x = [engine.reg_read(register) for register in REGISTERS]
            if x[8] == 94:  # exit_group
                codes.append(x[0])
                engine.emu_stop()
                return
            engine.reg_write(REGISTERS[0], self._system(engine, x) % (1 << 64))
            if self.next is not None:
                codes.append(0)
                engine.emu_stop()

        engine.hook_add(unicorn.UC_HOOK_INTR, called)
        engine.emu_start(struct.unpack_from("<Q", program, 24)[0], 0)
        return codes[0]

    def _system(self, engine: "unicorn.Uc", x: list[int]) -> int:
        match x[8]:
            case 63:  # read
                data = os.read(x[0], x[2])
                engine.mem_write(x[1], data)
                return len(data)
            case 64 if x[0] < 3:  # write
                return os.write(x[0], bytes(engine.mem_read(x[1], x[2])))
            case 64:
                self.files[x[0] - 3] += engine.mem_read(x[1], x[2])
                return x[2]
            case 103:  # setitimer: the emulator itself ends
                signal.setitimer(signal.ITIMER_REAL, struct.unpack("<4Q", engine.mem_read(x[1], 32))[2])
                return 0
            case 113:  # clock_gettime
                now = time.monotonic_ns()
                engine.mem_write(x[1], struct.pack("<2Q", now // 10**9, now % 10**9))
                return 0
            case 222:  # mmap: wherever there is room
                size = -(-x[1] // PAGE) * PAGE
                engine.mem_map(self.room, size)
                self.room += size
                return self.room - size
            case 279:  # memfd_create
                self.files.append(bytearray())
                return len(self.files) + 2
            case 281:  # execveat
                self.next = bytes(self.files[x[0] - 3])
                return 0
            case _:
                return NO_SUCH_CALL


def loaded(program: bytes, words: Sequence[str]) -> "unicorn.Uc":
    """A processor whose memory has the program, and on the stack its arguments."""
    engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    engine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
    engine.mem_map(STACK, STACK_BYTES)
    (table,) = struct.unpack_from("<Q", program, 32)
    for number in range(*struct.unpack_from("<H", program, 56)):
        kind, flags, offset, address, _, stored, size, _ = struct.unpack_from("<IIQQQQQQ", program, table + 56 * number)
        if kind == 1:
            first = address // PAGE * PAGE
            rights = sum(right for bit, right in ((4, 1), (2, 2), (1, 4)) if flags & bit)
            engine.mem_map(first, -(-(address + size - first) // PAGE) * PAGE, rights)
            engine.mem_write(address, program[offset : offset + stored])
    pointer = STACK + STACK_BYTES // 2
    at, places = pointer + PAGE, list[int]()
    for word in ("program", *words):
        places.append(at)
        engine.mem_write(at, word.encode() + b"\0")
        at += len(word.encode()) + 1
    engine.mem_write(pointer, struct.pack(f"<{len(places) + 3}Q", len(places), *places, 0, 0))
    engine.reg_write(arm.UC_ARM64_REG_SP, pointer)
    return engine


if __name__ == "__main__":
    try:
        raise SystemExit(Board().run(Path(sys.argv[1]).read_bytes(), sys.argv[2:]))
    except unicorn.UcError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
