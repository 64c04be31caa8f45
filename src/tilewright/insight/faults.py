"""Bundles for internal errors of the compiler: stored for reports, in a folder of limited size.

They contain the model, so folder and files are private (modes 0700 and 0600). A failure to write a bundle becomes a
note of the original error.
"""

import contextlib
import re
import secrets
import time
from pathlib import Path

from tilewright.base.errors import BadInput, TilewrightError
from tilewright.base.files import own_folder, reason
from tilewright.base.settings import PREFIX, Settings
from tilewright.frontend.api import Source
from tilewright.insight.repro import Request, pack_model

MOST_BUNDLES = 16
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.zip")


def note_of(error: BaseException, source: Source, request: Request, settings: Settings) -> str:
    """A note for ``error``: the path of a bundle that reproduces it, or why there is none."""
    if settings.repro_dir is None or settings.repro_bytes == 0:
        return f"no bundle to reproduce it was written, as {PREFIX}REPRO_DIR is off"
    try:
        path = _pack(error, source, request, settings.repro_dir, settings.repro_bytes)
    except OSError as fault:
        return f"no bundle to reproduce it could be written: {reason(fault)}"
    except (TilewrightError, ValueError, TypeError, LookupError, RuntimeError, MemoryError) as fault:
        return f"no bundle to reproduce it could be written: {type(fault).__name__}: {fault}"
    return f"a bundle to reproduce it is in {path}; it holds the model"


def _pack(error: BaseException, source: Source, request: Request, folder: Path, limit: int) -> Path:
    fault = own_folder(folder)
    if fault is not None:
        raise BadInput(f"{folder} {fault}")
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}.zip"
    pack_model(path, source, request, error, limit=limit, mode=0o600)
    _make_room(folder, path, limit)
    return path


def _make_room(folder: Path, newest: Path, limit: int) -> None:
    """Remove the oldest bundles, never ``newest``, until the maximum number and ``limit`` bytes are satisfied."""
    left = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path != newest]
    left.sort(key=lambda path: path.name, reverse=True)
    room, places = limit - newest.stat().st_size, MOST_BUNDLES - 1
    for path in left:
        with contextlib.suppress(FileNotFoundError):  # another process makes room as well
            size = path.lstat().st_size
            if places > 0 and size <= room:
                room, places = room - size, places - 1
            else:
                room, places = 0, 0
                path.unlink()
