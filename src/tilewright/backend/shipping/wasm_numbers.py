"""Numbers and names of WebAssembly, read and written. Source: core specification 2.0, section 5.2."""

from dataclasses import dataclass


@dataclass(slots=True)
class Reader:
    """Numbers and names, one after the other."""

    data: bytes
    at: int = 0

    def unsigned(self) -> int:
        """An unsigned LEB128."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        """A signed LEB128."""
        begin = self.at
        value = self.unsigned()
        bits = 7 * (self.at - begin)
        return value - (1 << bits) if value >> (bits - 1) else value

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        """A text after its length."""
        return self.take(self.unsigned()).decode()

    @property
    def more(self) -> bool:
        """Whether there are bytes left."""
        return self.at < len(self.data)


def padded(value: int, size: int = 5) -> bytes:
    """A number below ``1 << 7 * size - 1`` as LEB128 of ``size`` bytes, signed or not."""
    return bytes((value >> 7 * i & 127) | (128 if i < size - 1 else 0) for i in range(size))


def unsigned(value: int) -> bytes:
    """An unsigned LEB128."""
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def signed(value: int) -> bytes:
    """A signed LEB128."""
    found = bytearray()
    while not -64 <= value < 64:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value & 127)
    return bytes(found)
