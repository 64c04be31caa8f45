"""``VersionedModel``: a model with code for each of several sizes of its inputs, loaded from one file."""

from collections.abc import Callable, Mapping, Sequence

from tilewright.base.errors import BadFeed
from tilewright.runtime.artifact import Mapped
from tilewright.runtime.artifact.versions import Sizes
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import Feed, given_feeds, wrong_names
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.runnable import Pickled, RunnableModel


class VersionedModel(RunnableModel):
    """A model that runs inputs of the sizes that were compiled before it was saved; its shapes name these sizes.

    ``outputs`` and ``executable`` are those of the version used last; at first, of the first one.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        versions: Mapping[Sizes, Executable],
        signer: str | None,
        pickled: Callable[[], Pickled],
        file: Mapped | None = None,
    ) -> None:
        super().__init__(next(iter(versions.values())), signer, pickled)
        self._feeds_of = tuple(map(Feed, inputs))
        self._versions = dict(versions)
        self._file = file

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(feed.spec for feed in self._feeds_of)

    def versions(self) -> tuple[dict[str, int], ...]:
        """The sizes that it runs, by name."""
        return tuple(dict(sizes) for sizes in self._versions)

    def _executable_for(self, feeds: Mapping[str, object]) -> Executable:
        """The version for ``feeds``. Raises ``BadFeed`` if there is none, or they do not fit."""
        if self._file is not None:
            self._file.check()
        given = given_feeds(feeds)
        names = [feed.name for feed in self._feeds_of]
        if set(given) != set(names):
            raise wrong_names(names, given)
        sizes: dict[str, int] = {}
        for feed in self._feeds_of:
            feed.bind(feed.accept(given[feed.name]), sizes)
        found = self._versions.get(tuple(sizes.items()))
        if found is None:
            there = "; ".join(_shown(dict(each)) for each in self._versions)
            raise BadFeed(
                f"the artifact has no version for {_shown(sizes)}; it has {there}. Compile the model, make the version "
                f"by model.version({_shown(sizes)}), and save it again"
            )
        self._executable = found
        return found


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
