"""Permission to use the matrix unit of x86 (AMX): Linux gives it to a process that asks.

Its state is 8 KiB for each thread, which the kernel allocates only with permission; without it, the first instruction
ends the process by a signal. The permission holds for all threads of the process, also later ones, and for its
children by ``fork``; a new program (``exec``) asks again. (Linux, ``Documentation/arch/x86/xstate.rst``.)
"""

import ctypes
import sys
from functools import cache

ARCH_PRCTL = 158
"""The number of the system call."""
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


@cache
def may_use_tiles() -> bool:
    """Whether the kernel lets this process, which must be one of x86_64, use the matrix unit: asks once.

    Refused on kernels before 5.16, where a sandbox forbids the call, and if a thread has an alternate signal stack that
    is too small for the unit's state.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(ARCH_REQ_XCOMP_PERM), ctypes.c_long(XFEATURE_XTILEDATA)) == 0
