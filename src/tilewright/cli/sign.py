"""``tilewright sign``: sign an artifact with a secret key; generate keys, show public keys."""

import argparse
from pathlib import Path

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason
from tilewright.base.settings import Settings
from tilewright.cli.options import add_trust_arguments, trust_of
from tilewright.cli.output import emit
from tilewright.cli.status import Status
from tilewright.runtime import artifact

DEFAULT_KEY = "signing.pem"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to sign, or what to do with a key."""
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("artifact", type=Path, nargs="?", metavar="FILE.tw", help="the artifact to sign")
    wanted.add_argument("--generate", action="store_true", help="generate a secret key, and its public key in KEY.pub")
    wanted.add_argument("--show", action="store_true", help="show the public key of a secret key")
    parser.add_argument(
        "--key", type=Path, metavar="KEY", help=f"the file of the secret key (default: {DEFAULT_KEY} in the key folder)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.tw", help="default: the artifact itself")
    add_trust_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Sign, generate or show; print the public key."""
    settings = Settings.from_environment()
    key = _key_file(options.key, settings)
    signers: tuple[artifact.PublicKey, ...] = ()
    if options.generate:
        _make_folder(key.parent, settings)
        public = artifact.generate(key)
    else:
        secret = artifact.SecretKey(key)
        public = secret.public
        if options.artifact is not None:
            to = options.output or options.artifact
            signers = artifact.add_signature(options.artifact, to, secret, settings.key_dir, trust=trust_of(options))
    if options.json:
        written = None if options.artifact is None else str(options.output or options.artifact)
        emit({"key": str(key), "public_key": str(public), "output": written, "signers": list(map(str, signers))})
    else:
        console.print(str(public), soft_wrap=True)
    return Status.DONE


def _key_file(given: Path | None, settings: Settings) -> Path:
    """Raises ``BadInput`` if there is no folder for keys."""
    if given is not None:
        return given
    if settings.key_dir is None:
        raise BadInput("there is no home to keep a key in: give --key, or set TILEWRIGHT_KEY_DIR")
    return settings.key_dir / DEFAULT_KEY


def _make_folder(folder: Path, settings: Settings) -> None:
    """The folder of keys, checked. Raises ``BadInput`` if other users could write to it."""
    if folder != settings.key_dir:
        return
    try:
        fault = own_folder(folder)
    except OSError as error:
        fault = reason(error)
    if fault is not None:
        raise BadInput(f"a key can't be kept in {folder}: {fault}; give --key, or set TILEWRIGHT_KEY_DIR")
