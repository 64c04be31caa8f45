"""A cache of compiled models on disk, by which compiling a model again takes as long as hashing it.

An entry is a signed artifact, as ``save`` writes it, in a file named by the hash of its manifest. An index maps keys
to artifacts. A key is the hash of

    the model's bytes and those of its external data, shapes, bounds, target and all other options,
    the compiler's own sources, and the versions of the libraries that it reads and computes with.

An option that is a user's object is hashed with the sources of its package (``base.plugins.identity``); if these are
unknown, the model is not cached.

So lookups never depend on names or times, and a changed compiler compiles anew. An artifact is read as by ``load``: its
signature and all its hashes are checked before any of its code runs, and it must be the one in the index. Invalid
entries are removed, and the model is compiled.

The parts of a model in stages (``passes.parts``) are entries of their own: the model is imported each time.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import llvmlite
import numpy as np

from tilewright.base.errors import BadArtifact, BadInput, TilewrightError, UntrustedData
from tilewright.base.events import CacheLookup, Listener, Warned
from tilewright.base.files import own_folder, stamp
from tilewright.base.plugins import identity, sources
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.compilation import Options
from tilewright.frontend.api import Digest, GivenShapes, Source, Stamp
from tilewright.runtime import artifact
from tilewright.runtime.elsewhere import misfit


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. ``key``: hash of the model and its options; ``files``: states of the hashed files."""

    key: str
    source: str
    """SHA-256 of the model without its external data."""
    files: Mapping[Path, Stamp]

    def part(self, text: str) -> "Asked":
        """The request for a part of the model; ``text``: what the part is, and where."""
        return replace(self, key=hashlib.sha256(f"{self.key}\n{text}".encode()).hexdigest())

    def is_unchanged(self) -> bool:
        """Whether no file was modified since."""
        try:
            return all(stamp(path.stat()) == then for path, then in self.files.items())
        except OSError:
            return False


class ModelCache:
    """Compiled models in one folder. Threads and processes may share it."""

    def __init__(self, store: Store, key_dir: Path, listener: Listener) -> None:
        """``key_dir`` has the key that signs this user's artifacts; ``listener`` is called with lookups."""
        self._store = store
        self._key_dir = key_dir
        self._listener = listener

    @staticmethod
    def open(settings: Settings, listener: Listener) -> "ModelCache | None":
        """The cache of ``settings``; None if it is switched off, or if its folder can't be trusted or made."""
        if settings.cache_dir is None or settings.key_dir is None:
            return None
        with contextlib.suppress(OSError):  # reported for the inner folder
            if own_folder(settings.cache_dir) is not None:  # reported by the cache of kernels
                return None
        store = Store.open(settings.for_models(), _warnings(listener))
        return None if store is None else ModelCache(store, settings.key_dir, listener)

    def ask(
        self,
        source: Source,
        options: Options,
        shapes: GivenShapes,
        records: str = "",
    ) -> Asked | None:
        """The request for ``find`` and ``keep``. None if the model has no digest, can't be read (importing it reports
        the error), or can't be run here.

        ``records``: a text that changes with the records of tuning.
        """
        if misfit(options.target.platform, options.target.features) is not None:
            return None
        try:
            digest = source.digest(self._store)
            if digest is None:
                return None
            return Asked(_key(options, shapes, digest, records), digest.source, digest.files)
        except (OSError, ValueError, TilewrightError):
            return None

    def find(self, asked: Asked) -> artifact.Artifact | None:
        """The verified artifact of the model; None if there is none."""
        found = self._read(asked.key)
        self._listener(CacheLookup(asked.key, found is not None))
        return found

    def keep(self, asked: Asked, made: artifact.Artifact) -> None:
        """Store a model, unless a file was modified since it was hashed."""
        if not asked.is_unchanged():
            return
        try:
            file = artifact.packed(made, self._key_dir)
        except BadInput as error:
            self._listener(Warned(f"the compiled model is not kept: {error}"))
            return
        if self._store.path(file.identity) or self._store.keep(file.identity, file.size, file.parts):
            self._store.put(asked.key, file.identity.encode())

    def _read(self, key: str) -> artifact.Artifact | None:
        named = self._store.get(key)
        identity = None if named is None else named.decode()
        path = None if identity is None else self._store.path(identity)
        if identity is None or path is None:
            return None
        try:
            # Files of the cache are replaced, never written into; only this user could.
            return artifact.read(path, self._key_dir, identity=identity, content=artifact.shared_bytes(path))
        except (BadArtifact, BadInput, UntrustedData) as error:
            self._store.remove(identity, str(error))
            return None


def _warnings(listener: Listener) -> Listener:
    """A listener without the store's lookup events, as one lookup of a model makes several."""
    return lambda event: listener(event) if isinstance(event, Warned) else None


def _key(options: Options, shapes: GivenShapes, digest: Digest, records: str) -> str:
    """The key. Raises ``ValueError`` if an option or the sources of this process have no identity."""
    asked = {
        "compiler": [sources("tilewright"), llvmlite.__version__, np.__version__],
        "reader": digest.reader,
        "source": digest.source,
        "external data": dict(digest.others),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "options": identity(options),
        "records": records,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=repr).encode()).hexdigest()
