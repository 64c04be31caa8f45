"""Writes output files (artifacts, models, pages, rules, arrays, bundles) atomically, and never over an input.

    with output(path, inputs=[model]) as file:
        file.write(data)

Guarantees:

- A file appears completely or not at all; an existing file is unchanged until then, and keeps its permissions.
- No input is ever written to, by any of its names: another path, a symbolic link or a hard link.
- Only regular files are replaced, never devices, pipes, folders or symbolic links. Links are not followed, as the user
  has not asked to write their targets.
- Partial files of a killed process (``files.sweep``) are removed with the next output to the same folder.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tilewright.base.errors import BadInput, ResourceLimit
from tilewright.base.files import reason, replacing, sweep
from tilewright.base.input_files import kind_of
from tilewright.base.names import readable

AnyPath = str | os.PathLike[str]

_LONGEST_PATH = 4096
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def output(path: AnyPath, inputs: Iterable[AnyPath] = (), *, mode: int = 0o666) -> Generator[BinaryIO]:
    """A context manager: a file, which is at ``path`` when the block ends without an error; the block may only write.

    Raises ``BadInput`` as ``check_output`` does, or if the system refuses, ``ResourceLimit`` if the disk is full; then
    ``path`` is unchanged.
    """
    place = check_output(path, inputs)
    sweep(place.parent)
    try:
        with replacing(place, mode=mode) as file:
            yield file
    except OSError as error:
        raise _failure(place, error) from error


def check_output(path: AnyPath, inputs: Iterable[AnyPath] = ()) -> Path:
    """``path``, if it may be written: call this before long work.

    Raises ``BadInput`` if it exists and is not a regular file, is one of ``inputs``, or its folder does not exist.
    """
    place = Path(path)
    if place.name in ("", "..") or "\0" in str(place):
        raise _refusal(place, "it is no name of a file; give one")
    try:
        facts = place.lstat()
    except FileNotFoundError:
        if not place.parent.is_dir():
            raise _refusal(place, f"there is no folder {_shown(place.parent)}; make it first") from None
        return place
    except OSError as error:
        raise _failure(place, error) from error
    if stat.S_ISLNK(facts.st_mode):
        to = _shown(os.path.realpath(place))
        raise _refusal(place, f"it is a symbolic link; give the file that it points to ({to}), or remove the link")
    if not stat.S_ISREG(facts.st_mode):
        what = kind_of(facts) or "no regular file"
        raise _refusal(place, f"it is {what}; give another name")
    for given in inputs:
        if _is(given, facts):
            raise _refusal(place, f"it is an input ({_shown(given)}); give another name")
    return place


def _is(path: AnyPath, facts: os.stat_result) -> bool:
    """Whether ``path`` leads to the file with this ``stat`` result."""
    try:
        return os.path.samestat(os.stat(path), facts)
    except (OSError, ValueError):
        return False


def _shown(path: AnyPath) -> str:
    return readable(os.fspath(path), _LONGEST_PATH)


def _refusal(path: Path, why: str) -> BadInput:
    return BadInput(f"{_shown(path)} can't be written: {why}")


def _failure(path: Path, error: OSError) -> BadInput:
    why = f"{_shown(path)} can't be written: {reason(error)}"
    return ResourceLimit(f"{why}; free some space, or give another place") if error.errno in _FULL else BadInput(why)
