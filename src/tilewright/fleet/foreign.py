"""Artifacts that run outside of the process that reads them: in an emulator, on a board without Python."""

from collections.abc import Mapping

from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, Unsupported
from tilewright.base.names import readable
from tilewright.fleet.model_child import content_of
from tilewright.runtime import artifact
from tilewright.runtime.feeds import Feed

_NAME = "the artifact"


def artifact_of(asked: Mapping[str, object], key: str) -> artifact.Artifact:
    """What was uploaded. Raises ``CorruptArtifact``, ``Unsupported`` for a model with stages or versions."""
    content = artifact.in_memory(content_of(asked, key))
    if artifact.holds_stages(content) or artifact.holds_versions(content):
        raise Unsupported("the device runs models of fixed shapes in one piece: give --shape for each input")
    return artifact.read(_NAME, None, trust=True, content=content, elsewhere=True)


def checked_feeds(model: artifact.Artifact, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of the model, by name. Raises ``BadFeed``."""
    specs = {spec.name: spec for spec in model.manifest.inputs}
    if strange := feeds.keys() ^ specs.keys():
        raise BadFeed(f"{', '.join(map(readable, sorted(strange)))}: give the inputs of the model, each once")
    return {name: Feed(spec).accept(feeds[name]) for name, spec in specs.items()}
