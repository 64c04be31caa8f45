"""``RemoteModels``: compiled models on a leased device: outputs, and times."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from math import isfinite

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.fleet.arrays import array_of, hashed
from tilewright.fleet.device import Verb
from tilewright.fleet.fleet import Leased
from tilewright.fleet.model_child import Kind
from tilewright.measure.samples import Samples
from tilewright.measure.turns import Plan, Timing

_START_SECONDS = 300.0
"""To start a process, load models and, the first time, map them."""
_SLACK_SECONDS = 30.0
_UNBOUNDED_SECONDS = 3600.0


class RemoteModels:
    """Models on a device. ``artifacts``: what ``save`` has written for the device's target; ``threads``: of a run, at
    most the processors of the device."""

    def __init__(self, device: Leased, artifacts: Sequence[bytes], threads: int) -> None:
        self._device = device
        self._artifacts = {sha256(content).hexdigest(): content for content in artifacts}
        self._order = [sha256(content).hexdigest() for content in artifacts]
        self._threads = min(threads, device.device.cores)
        self.machine: Mapping[str, float] = {}
        """Load, clock speed and temperature of the device after the last run, where it has them."""

    @property
    def threads(self) -> int:
        """Of a run."""
        return self._threads

    def run(self, feeds: Mapping[str, Array], timeout: float | None = None) -> list[Array]:
        """The outputs of the first model.

        Raises as ``RunnableModel.run`` does, ``MeasureError`` if it ends its process, ``FleetError`` if the lease ends.
        """
        seconds = _UNBOUNDED_SECONDS if timeout is None else timeout + _START_SECONDS
        answer, parts = self._call(Kind.RUN, self._order[:1], feeds, seconds, {"timeout": timeout})
        outputs = zip(fields.items(answer["outputs"]), parts, strict=True)
        return [array_of(description, content)[1] for description, content in outputs]

    def turns(self, feeds: Mapping[str, Array], plan: Plan) -> list[Timing]:
        """Times of the models, in turns, as ``measure.turns`` takes them. Raises as ``run`` does."""
        asked = {name: value if isfinite(value) else None for name, value in asdict(plan).items()}
        budget = plan.budget if isfinite(plan.budget) else plan.rounds * len(self._order) * (plan.slot + plan.rest)
        answer, _ = self._call(Kind.TURNS, self._order, feeds, _START_SECONDS + 4 * budget, {"plan": asked})
        timings = [fields.items(turns) for turns in fields.items(answer["turns"])]
        return [Timing(tuple(map(_times, turns))) for turns in timings]

    def samples(self, feeds: Mapping[str, Array], seconds: float) -> Samples:
        """Times of the first model, kernel by kernel. Raises as ``run`` does."""
        asked = {"sample_seconds": seconds}
        answer, _ = self._call(Kind.SAMPLES, self._order[:1], feeds, _START_SECONDS + 4 * seconds, asked)
        parts = tuple(map(_times, fields.items(answer["parts"])))
        return Samples(_times(answer["totals"]), parts, fields.whole(answer["threads"]))

    def _call(
        self,
        kind: Kind,
        artifacts: Sequence[str],
        feeds: Mapping[str, Array],
        seconds: float,
        more: Mapping[str, object],
    ) -> tuple[dict[str, object], tuple[bytes, ...]]:
        contents = {key: self._artifacts[key] for key in artifacts}
        descriptions: list[dict[str, object]] = []
        for name, array in feeds.items():
            description, key, content = hashed(name, array)
            descriptions.append(description)
            contents[key] = content
        asked = {
            "verb": Verb.RUN.value,
            "kind": kind.value,
            "artifacts": list(artifacts),
            "feeds": descriptions,
            "threads": self._threads,
            "seconds": seconds,
            **more,
        }
        answer, parts = self._device.call(asked, contents, seconds + _SLACK_SECONDS)
        self.machine = fields.numbers(answer["machine"])
        return answer, parts


def _times(values: object) -> tuple[float, ...]:
    return tuple(map(fields.number, fields.items(values)))
