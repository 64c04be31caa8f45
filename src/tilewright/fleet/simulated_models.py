"""The process in which an emulated device runs whole models: ``python -m tilewright.fleet.simulated_models``.

Its seconds are those of a core at 1 GHz: thousands of millions of simulated cycles (``docs/simulation.md``).
"""

from collections.abc import Mapping, Sequence

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.errors import FleetError, Unsupported
from tilewright.fleet.foreign import artifact_of, checked_feeds
from tilewright.fleet.model_child import Kind, feeds_of, keys_of, serve_as, written
from tilewright.runtime.artifact import Artifact
from tilewright.simulation.cycles import HERTZ, Simulated, simulate
from tilewright.simulation.emulator import Stopped


def simulated(asked: Mapping[str, object]) -> dict[str, object]:
    """Do it in an emulator."""
    models = [artifact_of(asked, key) for key in keys_of(asked)]
    feeds = feeds_of(asked)
    runs = [_run(model, feeds, fields.number(asked["seconds"])) for model in models]
    return {**_told(asked, models[0], runs), "machine": runs[0].facts}


def _told(asked: Mapping[str, object], model: Artifact, runs: Sequence[Simulated]) -> dict[str, object]:
    match Kind(asked["kind"]):
        case Kind.RUN:
            names = [spec.name for spec in model.manifest.outputs]
            return {"outputs": written(asked, names, runs[0].outputs)}
        case Kind.TURNS:
            return {"turns": [[[run.cost.cycles / HERTZ]] for run in runs]}
        case Kind.SAMPLES:
            (run,) = runs
            return {"totals": [run.cost.cycles / HERTZ], "parts": [[n / HERTZ for n in run.calls]], "threads": 1}


def _run(model: Artifact, feeds: Mapping[str, Array], seconds: float) -> Simulated:
    """Raises ``BadFeed``, ``Unsupported``, ``FleetError``."""
    try:
        return simulate(model, checked_feeds(model, feeds), seconds)
    except Stopped as stopped:
        raise FleetError(f"the emulator has stopped: {stopped}") from stopped
    except ModuleNotFoundError as error:
        raise Unsupported(f'the device lacks {error.name}: pip install "tilewright[simulation]" there') from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one request."""
    return serve_as(simulated, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
