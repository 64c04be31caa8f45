"""Linux that refuses threads."""

import errno
import os

from tilewright.runtime.system.api import in_libraries
from tilewright.runtime.system.linux import Linux


class Stingy(Linux):
    """It gives ``most`` threads; ``asked``: how often it was asked for one."""

    def __init__(self, most: int) -> None:
        super().__init__(in_libraries(None))
        self._most = most
        self.asked = 0

    def create_thread(self, function: int, argument: int, attributes: int | None = None) -> int:
        self.asked += 1
        if self.asked > self._most:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return super().create_thread(function, argument, attributes)
