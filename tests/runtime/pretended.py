"""Libraries of macOS and Windows that are made of Linux's functions, and note what is asked of them.

Types are those of the systems' own headers, so that a caller that passes less of a number is found out.
"""

import ctypes
from collections.abc import Callable
from typing import Final

from tilewright.runtime.system.api import Access, in_libraries
from tilewright.runtime.system.linux import Linux

DWORD, HANDLE, ADDRESS, SIZE, INT = (
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_int,
)
FIRST_HANDLE: Final = 1 << 40
"""Handles have 64 bits."""
PROTECTIONS: Final = {0x01: Access.NONE, 0x02: Access.READ, 0x04: Access.WRITE, 0x20: Access.EXECUTE}


class Pretended:
    """Functions by their names. ``calls``: names and arguments, in order. ``fails``: names that fail from now on."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.fails = set[str]()
        self.linux = Linux(in_libraries(None))
        self._functions: dict[str, ctypes._CFuncPtr] = {}

    def find(self, name: str) -> int | None:
        function = self._functions.get(name)
        return None if function is None else ctypes.cast(function, ctypes.c_void_p).value

    def named(self, *names: str) -> list[tuple[object, ...]]:
        """The calls of some functions."""
        return [call for call in self.calls if call[0] in names]

    def _offer(
        self, name: str, result: object, types: tuple[object, ...], does: Callable[..., object], failed: int = 0
    ) -> None:
        def called(*arguments: object) -> object:
            self.calls.append((name, *arguments))
            if name in self.fails:
                ctypes.set_errno(12)
                return failed
            return does(*arguments)

        self._functions[name] = ctypes.CFUNCTYPE(result, *types, use_errno=True)(called)


class PretendedWindows(Pretended):
    """What ``Windows`` asks for; one page is one of Linux, a thread one of POSIX."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._offer("VirtualAlloc", ADDRESS, (ADDRESS, SIZE, DWORD, DWORD), self._allocate)
        self._offer("VirtualFree", INT, (ADDRESS, SIZE, DWORD), self._free)
        self._offer("VirtualProtect", INT, (ADDRESS, SIZE, DWORD, ADDRESS), self._protect)
        self._offer("FlushInstructionCache", INT, (HANDLE, ADDRESS, SIZE), lambda *_: 1)
        self._offer("CreateThread", HANDLE, (ADDRESS, SIZE, ADDRESS, ADDRESS, DWORD, ADDRESS), self._create)
        self._offer("WaitForSingleObject", DWORD, (HANDLE, DWORD), self._wait)
        self._offer("CloseHandle", INT, (HANDLE,), lambda *_: 1)
        self._offer("GetLastError", DWORD, (), lambda: 1455)

    def _allocate(self, address: int, size: int, kind: int, protection: int) -> int:
        assert (address, kind, protection) == (0, 0x3000, 0x04)
        found = self.linux.map(size, for_code=True)
        self._sizes[found] = size
        return found

    def _free(self, address: int, size: int, kind: int) -> int:
        assert (size, kind) == (0, 0x8000)
        self.linux.unmap(address, self._sizes.pop(address))
        return 1

    def _protect(self, address: int, size: int, protection: int, before: int) -> int:
        ctypes.c_uint32.from_address(before).value = 0x04
        self.linux.protect(address, size, PROTECTIONS[protection])
        return 1

    def _create(self, security: int, stack: int, function: int, argument: int, flags: int, number: int) -> int:
        assert (security, flags, number) == (0, 0x10000, 0)
        handle = FIRST_HANDLE + len(self._threads)
        self._threads[handle] = self.linux.create_thread(function, argument)
        return handle

    def _wait(self, handle: int, milliseconds: int) -> int:
        assert milliseconds == 0xFFFFFFFF
        self.linux.join_thread(self._threads[handle])
        return 0


class PretendedMacOS(Pretended):
    """What ``MacOS`` asks for. Pages for code can be written and run at once here, and ``may_write`` says who may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = False
        self._offer("mmap", ADDRESS, (ADDRESS, SIZE, INT, INT, INT, ctypes.c_int64), self._map, (1 << 64) - 1)
        self._offer("munmap", INT, (ADDRESS, SIZE), self._unmap)
        self._offer("mprotect", INT, (ADDRESS, SIZE, INT), lambda *_: 0, -1)
        self._offer("pthread_jit_write_protect_np", None, (INT,), self._turn)
        self._offer("sys_icache_invalidate", None, (ADDRESS, SIZE), lambda *_: None)
        self._offer("pthread_attr_init", INT, (ADDRESS,), lambda *_: 0)
        self._offer("pthread_attr_setstacksize", INT, (ADDRESS, SIZE), lambda *_: 0)
        self._offer("pthread_create", INT, (ADDRESS, ADDRESS, ADDRESS, ADDRESS), self._create, 35)
        self._offer("pthread_join", INT, (ADDRESS, ADDRESS), self._join)

    def _map(self, address: int, size: int, protection: int, flags: int, file: int, offset: int) -> int:
        assert (address, file, offset) == (0, -1, 0)
        assert (protection, flags) in ((3, 0x1002), (7, 0x1802))
        return self.linux.mapped(size, protection, 0x22)

    def _unmap(self, address: int, size: int) -> int:
        self.linux.unmap(address, size)
        return 0

    def _turn(self, protected: int) -> None:
        self.may_write = not protected

    def _create(self, thread: int, attributes: int, function: int, argument: int) -> int:
        assert attributes
        ctypes.c_uint64.from_address(thread).value = self.linux.create_thread(function, argument)
        return 0

    def _join(self, thread: int, result: int) -> int:
        self.linux.join_thread(thread)
        return 0
