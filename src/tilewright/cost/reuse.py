"""What it costs to read again what was written, or read, so many bytes ago."""

from tilewright.target.target import Target


def left(size: float, capacity: float) -> float:
    """The part of ``size`` bytes, read again and again, that has left a cache when it is read: what does not fit takes
    the place of as much that would."""
    return min(1.0, max(0.0, 2 * (1 - capacity / size))) if size else 0.0


def passing_cycles(size: float, since: float, target: Target) -> float:
    """Cycles more than from a core's own caches to write and to read ``size`` bytes of a value, if ``since`` bytes are
    used from when an element is written to when it is read."""
    gone = left(since, target.machine.cache_part * target.l2_bytes)
    return 2 * size * gone * max(0.0, 1 / target.machine.far_bytes - 1 / target.machine.near_bytes)
