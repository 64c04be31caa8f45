"""Policies for an out-of-range index in input data at run time: an error, or the nearest valid index."""

from tilewright.base.choices import Choice


class Checks(Choice):
    """Both are memory-safe, even if another thread changes the indices meanwhile: each is read once."""

    ON = "on"
    """The run raises ``IndexOutOfRange``, which names the node, the index and the extent; nothing is returned."""
    OFF = "off"
    """The nearest valid index is used, without a report."""
