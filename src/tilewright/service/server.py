"""Serves the API: workers, then a socket, until a signal."""

import ipaddress
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn

from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, Warned
from tilewright.base.files import reason
from tilewright.base.names import shown
from tilewright.service.app import Service, make_app
from tilewright.service.confined import probe
from tilewright.service.jobs import Jobs
from tilewright.service.leases import Leases
from tilewright.service.limits import Limits
from tilewright.service.store import Store
from tilewright.service.supervisor import Supervisor
from tilewright.service.tables import Database
from tilewright.service.tokens import LOCAL, Tokens, read

_CONNECTIONS: Final = 512
_GOODBYE_SECONDS: Final = 3
_LEFTOVERS_SECONDS: Final = 86_400.0
"""After so long, nothing in the store's folder of work is still worked on."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where. ``database``: a URL; None: a file in ``folder``. ``port`` 0: any that is free."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    database: str | None = None
    tokens: Tokens = field(default_factory=lambda: Tokens({}))
    limits: Limits = field(default_factory=Limits)


def serve(serving: Serving, began: Callable[[str], None], listener: Listener) -> None:
    """Serve until SIGTERM; ``began`` is told the address.

    Raises ``BadInput`` if the address, the folder or the database can't be used, and ``KeyboardInterrupt``.
    """
    is_local = is_loopback(serving.host)
    if not serving.tokens.owners and not is_local:
        raise BadInput(f"{serving.host} can be reached by others: give --tokens, or serve on 127.0.0.1")
    store = Store.open(serving.folder)
    store.clear(time.time() - _LEFTOVERS_SECONDS)
    url = serving.database or f"sqlite:///{store.folder / 'jobs.db'}"
    database, limits = Database(url), serving.limits
    for owner in (*serving.tokens.owners.values(), LOCAL):
        database.add_owner(owner.name)
    confinement = probe()
    for missing, present in (("the network", confinement.network), ("files of others", confinement.files)):
        if not present:
            listener(Warned(f"this system can't keep compilations from {missing} (docs/service.md)"))
    leases = Leases(database, limits.lease_seconds, limits.attempts)
    workers = Supervisor(leases, serving.workers, url, store.folder, limits)
    service = Service(Jobs(database), store, serving.tokens, limits, confinement, workers.alive, is_local)
    with _bound(serving.host, serving.port) as end, workers:
        _serve(service, end, began)
    database.close()


def tokens_in(given: str) -> Tokens:
    """The tokens in a file, or, of ``env:NAME``, in a variable. Raises ``BadInput``."""
    if given.startswith("env:"):
        return read(variable(given), given)
    try:
        with open(given, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise BadInput(f"{given}: other users can write to it (chmod 600 it)")
            return read(file.read().decode(), given)
    except OSError as error:
        raise BadInput(f"{given} can't be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{given} is no text") from error


def variable(given: str) -> str:
    """The value of the variable that ``env:NAME`` names; other texts as they are. Raises ``BadInput``."""
    if not given.startswith("env:"):
        return given
    name = given.removeprefix("env:")
    if name not in os.environ:
        raise BadInput(f"the variable {shown(name)} is not set")
    return os.environ[name]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_CONNECTIONS)
    except OSError as error:
        raise BadInput(f"{shown(host)}, port {port} can't be served on: {reason(error)}") from error


def _serve(service: Service, end: socket.socket, began: Callable[[str], None]) -> None:
    host, port = end.getsockname()[:2]
    config = uvicorn.Config(
        make_app(service),
        log_level="warning",
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
        server_header=False,
    )
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again after it has ended
    began(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    uvicorn.Server(config).run(sockets=[end])


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the server has ended, and its workers end next."""
