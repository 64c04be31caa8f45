"""The length of RISC-V's vector registers, which Linux does not list: asked of the processor itself.

Source: The RISC-V "V" Vector Extension, version 1.0, section 3.6 (``vlenb``, control register 0xC22).
"""

import ctypes
import mmap
import platform
import struct

READ_VLENB = struct.pack("<2I", 0xC2202573, 0x00008067)
"""``csrr a0, vlenb; ret``: a function that returns the bytes of a vector register."""


def vector_bytes() -> int:
    """Bytes of a vector register of this processor, which must have vectors if it is a RISC-V.

    16, which the extension guarantees, on another processor, and if the system allows no code to be made.
    """
    if platform.machine() != "riscv64":
        return 16
    libc = ctypes.CDLL(None)
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        page[: len(READ_VLENB)] = READ_VLENB
        first = ctypes.c_char.from_buffer(page)
        address = ctypes.addressof(first)
        del first  # the page can't be closed while it is there
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(page)), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            return 16
        return ctypes.CFUNCTYPE(ctypes.c_size_t)(address)()
