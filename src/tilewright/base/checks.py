"""The policies for an index that is data and out of range at run time: an error, or the nearest valid index."""

from tilewright.base.choices import Choice


class Checks(Choice):
    """Memory is safe either way, also while another thread changes the indices: each is read once."""

    ON = "on"
    """The run raises ``IndexOutOfRange``, which names the node, the index and the extent; nothing is returned."""
    OFF = "off"
    """The nearest index within is taken, and nobody is told."""
