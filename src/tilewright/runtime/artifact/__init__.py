"""Artifacts: a compiled model as one file that runs without the compiler.

In: an ``Artifact`` (objects, constants, manifest, origin and target). Out: a ``.tw`` file, and back.

    save(artifact, path, key_dir)
    artifact = read(path, key_dir, trust=False)

The file is a zip of stored members, in this order:

    manifest.json         ``description``: everything that is no code and no number; size and hash of what follows
    objects/0000.o ...    relocatable objects, linked when the artifact is loaded
    weights.safetensors   ``tensors``: the constants, laid out to be used where they are read or mapped
    signature             ``signatures``: who vouches for the manifest: this user (``origin``), or who has the secret of
                          a public key (``keys``); left out if nobody signed

``sealed`` is the form of a file: the first member describes the others and is signed. ``versions`` puts several into
one file, for a model that is compiled for each size of its inputs, and ``stages`` for a model whose shapes depend on
data. ``content`` reads the bytes of a file. ``archive`` implements zip, and accepts only files in its own form: equal
models for equal targets give equal bytes, and every byte of a file is checked. Reading runs no code, unpickles nothing,
and writes nothing to disk. To add a field: extend ``description`` in both directions, and increase
``description.FORMAT``.
"""

from tilewright.runtime.artifact.artifact import DEVICES, Artifact, add_signature, packed, read, save
from tilewright.runtime.artifact.content import Mapped, in_memory, own_bytes, shared_bytes
from tilewright.runtime.artifact.description import Build
from tilewright.runtime.artifact.keys import PublicKey, SecretKey, generate, trusted
from tilewright.runtime.artifact.sealed import THIS_USER, Trust, unusable
from tilewright.runtime.artifact.stages import Stages, holds_stages, pack_stages, read_stages, save_stages
from tilewright.runtime.artifact.versions import (
    Sizes,
    Versions,
    holds_versions,
    pack_versions,
    read_versions,
    save_versions,
)

__all__ = [
    "Artifact",
    "Build",
    "DEVICES",
    "Mapped",
    "PublicKey",
    "SecretKey",
    "Sizes",
    "Stages",
    "THIS_USER",
    "Trust",
    "Versions",
    "add_signature",
    "generate",
    "holds_stages",
    "holds_versions",
    "in_memory",
    "own_bytes",
    "pack_stages",
    "pack_versions",
    "packed",
    "read",
    "read_stages",
    "read_versions",
    "save",
    "save_stages",
    "save_versions",
    "shared_bytes",
    "trusted",
    "unusable",
]
