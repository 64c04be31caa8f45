"""The accelerator's configuration, searched for a network: blocks and memories with which it takes least time.

In: a network's layers, and how much of a chip there is. Out: configurations with cycles and areas, the fastest one
first, of which none is slower and larger than another. ::

    networks       layers and how often each is computed: what is screened, and what is rated; those of ResNet-18
    model          the same of a quantized model
    space          configurations that fit an area
    screening      estimates of cycles for all of them, by the tiles that the compiler would choose
    search         what is compiled and rated by the cycle simulator, and the front

A network of another kind has the two methods of ``networks.Network``.
"""

from tilewright.codesign.networks import RESNET18, LayerNetwork, Network
from tilewright.codesign.search import Found, Rated, search

__all__ = ["RESNET18", "Found", "LayerNetwork", "Network", "Rated", "search"]
