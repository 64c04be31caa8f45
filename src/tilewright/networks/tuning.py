"""Networks are tuned: searched together, compared one by one, and what makes them faster is accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.errors import BadInput
from tilewright.loops.identity import identity
from tilewright.measure.records import Records
from tilewright.model import CompiledModel
from tilewright.networks.comparison import Comparison
from tilewright.networks.network import Untuned
from tilewright.networks.place import HERE, Place
from tilewright.networks.plan import Plan
from tilewright.networks.search import Found, Search, Unwatched, Watch
from tilewright.networks.settle import Offers, Settled, settle
from tilewright.tune.measurer import Measurer
from tilewright.tune.model_tuner import Gain
from tilewright.tune.ways import WayTuner

UNWATCHED = Unwatched()


@dataclass(frozen=True, slots=True)
class KernelResult:
    """A kernel of a network: its name there, how often a run calls it, and what was found (see ``Gain``).

    ``is_used``: ``compile`` uses a schedule that was found for it.
    """

    name: str
    weight: int
    before_us: float
    after_us: float
    tried: int
    is_used: bool


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """``ways``: the comparison is with other algorithms or layouts of nodes.

    ``is_kept``: it is faster with what was found. If it is not, ``compile`` may use schedules for it that make other
    networks faster, and this one not slower.
    """

    name: str
    comparison: Comparison
    is_kept: bool
    ways: bool
    kernels: tuple[KernelResult, ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """``measured``: jobs that had no record yet; ``simulated``: whose cycles times are, a nanosecond each, if code was
    not timed."""

    networks: tuple[NetworkResult, ...]
    threads: int
    measured: int
    simulated: str = ""


def prepared(path: Path) -> Path:
    """``path``, once a database of records can be written there. Raises ``BadInput`` if it can't."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent} can't be made: {error}") from error
    with Records.open(path):
        return path


def tune_networks(
    networks: Sequence[Untuned],
    plan: Plan,
    path: Path,
    told: Mapping[str, object],
    watch: Watch = UNWATCHED,
    place: Place = HERE,
) -> Tuned:
    """Tune for ``plan.minutes``, and what confirming and comparing take. ``told``: is kept with the session in records;
    ``place``: where all is measured.

    Raises ``BadInput`` if nothing is open in a network, they are compiled for different targets or threads, or the
    plan has not one requirement for each. If it is interrupted, records keep what was measured and ``compile`` uses
    nothing of it.
    """
    if len({(str(network.model.options.target), network.threads) for network in networks}) != 1:
        raise BadInput("networks that are tuned together are compiled for one target and one number of threads")
    if plan.requirements and len(plan.requirements) != len(networks):
        raise BadInput(
            f"there are {len(networks)} models, and {len(plan.requirements)} requirements: give one for each"
        )
    config = {**told, "kernels": _named(networks)}
    with Records.open(path) as records, records.session(config) as session, place.bench() as bench:
        measurer = Measurer(bench, records, session)
        search = Search(networks, plan, records, measurer, watch, place)
        found = search.run()
        settled = _settled(networks, search, found, records, place)
        _accept(found, settled, measurer)
    results = tuple(_result(number, networks, found, settled) for number in range(len(networks)))
    simulated = place.simulated(networks[0].model.options.target)
    return Tuned(results, networks[0].threads, measurer.measured, simulated)


def _named(networks: Sequence[Untuned]) -> dict[str, object]:
    """Names of kernels and their nodes, of all networks, by the kernels' keys in records."""
    names: dict[str, str] = {}
    nodes: dict[str, list[str]] = {}
    for network in networks:
        for key, (name, of_network) in network.names.items():
            names.setdefault(key, name)
            known = nodes.setdefault(key, [])
            known += [node for node in of_network if node not in known]
    return {key: {"name": name, "nodes": nodes[key]} for key, name in names.items()}


def _offers(found: Found) -> list[WayTuner | Gain]:
    """What may be accepted: all ways of a network together, and each schedule by itself."""
    ways = [ways for ways in found.ways if ways is not None]
    return [*ways, *(gain for gain in found.gains if gain.winner is not None)]


def _settled(networks: Sequence[Untuned], search: Search, found: Found, records: Records, where: Place) -> Settled:
    offers = _offers(found)
    workloads = [
        {job.workload for job in ways.jobs} | network.names.keys() | _names_of(base).keys()
        for network, base, ways in zip(networks, found.bases, search.ways, strict=True)
    ]

    def touched(offer: WayTuner | Gain) -> frozenset[int]:
        keys = {offer.key} if isinstance(offer, Gain) else {job.workload for job in offer.jobs}
        return frozenset(place for place, known in enumerate(workloads) if keys & known)

    def compare(place: int, own: Offers) -> Comparison:
        network, chosen = networks[place], [offers[offer] for offer in sorted(own)]
        if not chosen:
            return replace(where.in_turns(network.model, network.model, network.feeds), is_found=False)
        ways = [record for offer in chosen if isinstance(offer, WayTuner) for record in offer.used(records)]
        gains = [offer for offer in chosen if isinstance(offer, Gain)]
        after = network.with_records((*ways, *found.tuner.used(gains, records)))
        return where.in_turns(network.model, after, network.feeds)

    return settle([touched(offer) for offer in offers], len(networks), compare)


def _accepted(found: Found, settled: Settled) -> list[WayTuner | Gain]:
    return [offer for place, offer in enumerate(_offers(found)) if place in settled.accepted]


def _accept(found: Found, settled: Settled, measurer: Measurer) -> None:
    """Accept what is accepted, and withdraw all other schedules; algorithms that are not accepted stay held."""
    accepted = _accepted(found, settled)
    found.tuner.withdraw([gain for gain in found.gains if gain not in accepted])
    found.tuner.accept([offer for offer in accepted if isinstance(offer, Gain)])
    for offer in accepted:
        if isinstance(offer, WayTuner):
            offer.accept(measurer)


def _result(place: int, networks: Sequence[Untuned], found: Found, settled: Settled) -> NetworkResult:
    comparison, accepted, names = settled.comparisons[place], _accepted(found, settled), _names_of(found.bases[place])
    kernels = tuple(
        KernelResult(names[gain.key], gain.calls[place], gain.before_us, gain.after_us, gain.tried, gain in accepted)
        for gain in found.gains
        if gain.calls[place]
    )
    is_found = found.ways[place] is not None
    return NetworkResult(networks[place].network.name, comparison, comparison.is_kept, is_found, kernels)


def _names_of(model: CompiledModel) -> dict[str, str]:
    """The names of a model's kernels, by their keys in records."""
    return {identity(kernel.naive): kernel.naive.name for kernel in model.compiled.kernels}
