"""Serves the API: workers, then a socket, until a signal. Or has workers alone, for a service on another machine."""

import ipaddress
import os
import signal
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn

from tilewright.base.errors import BadInput
from tilewright.base.events import Listener, Warned
from tilewright.base.files import reason
from tilewright.base.names import shown
from tilewright.service.app import Service, make_app
from tilewright.service.config import Config
from tilewright.service.confined import Confinement, probe
from tilewright.service.jobs import Jobs
from tilewright.service.leases import Leases
from tilewright.service.limits import Limits, Unavailable
from tilewright.service.store import Store, objects_in
from tilewright.service.supervisor import Supervisor
from tilewright.service.surroundings import Devices, RecordsWatch, Surroundings
from tilewright.service.tables import Database
from tilewright.service.tokens import LOCAL, Tokens, read

if TYPE_CHECKING:
    from tilewright.fleet.access import Access

_CONNECTIONS: Final = 512
_GOODBYE_SECONDS: Final = 3
_LEFTOVERS_SECONDS: Final = 86_400.0
"""After so long, nothing in the store's folder of work is still worked on."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of the service, with those that vouch for it, and its key: files in PEM."""

    chain: Path
    key: Path

    def check(self) -> None:
        """Raises ``BadInput`` if they can't be used."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.chain, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            why = str(error) if isinstance(error, ssl.SSLError | ValueError) else reason(error)
            raise BadInput(f"the certificate {self.chain} with the key {self.key} can't be used: {why}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted: give one that is not")


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where. ``port`` 0: any that is free; ``database``: a URL; None: a file in ``folder``; ``store``:
    ``s3://BUCKET/PREFIX``; None: ``folder``; ``insecure``: other machines may speak without encryption."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    database: str | None = None
    store: str | None = None
    tokens: Tokens = field(default_factory=lambda: Tokens({}))
    limits: Limits = field(default_factory=Limits)
    certificate: Certificate | None = None
    insecure: bool = False
    fleet: "Access | None" = None
    """Whose devices the page shows."""
    records: Path | None = None
    """What of the page tells how many there are."""


def serve(serving: Serving, began: Callable[[str], None], listener: Listener) -> None:
    """Serve until SIGTERM; ``began`` is told the address.

    Raises ``BadInput`` if the address, the certificate, the folder, the store or the database can't be used, and
    ``KeyboardInterrupt``.
    """
    is_local = is_loopback(serving.host)
    _check_access(serving, is_local)
    with _opened(serving, listener) as parts, _watching(serving.fleet) as devices:
        for owner in (*serving.tokens.owners.values(), LOCAL):
            parts.database.add_owner(owner.name)
        records = None if serving.records is None else RecordsWatch(serving.records).recorded
        service = Service(
            Jobs(parts.database),
            parts.store,
            serving.tokens,
            serving.limits,
            parts.confinement,
            Surroundings(parts.workers.alive, devices, records),
            is_local,
        )
        with bound(serving.host, serving.port) as end, parts.workers:
            _serve(service, end, serving.certificate, began)


@contextmanager
def _watching(fleet: "Access | None") -> Generator[Callable[[], Devices] | None]:
    if fleet is None:
        yield None
        return
    from tilewright.service.fleet_watch import FleetWatch

    with FleetWatch(fleet) as watch:
        yield watch.devices


def work(serving: Serving, began: Callable[[], None], listener: Listener) -> None:
    """Have workers until SIGTERM, for a service elsewhere that has the same database and store; ``began`` is called.

    Raises ``BadInput`` if the folder, the store or the database can't be used, and ``KeyboardInterrupt``.
    """
    if serving.database is None or serving.store is None:
        raise BadInput("workers alone need --database and --store, as the service has them")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended.set())
    with _opened(serving, listener) as parts, parts.workers:
        began()
        ended.wait()


@dataclass(frozen=True, slots=True)
class _Parts:
    database: Database
    store: Store
    confinement: Confinement
    workers: Supervisor


@contextmanager
def _opened(serving: Serving, listener: Listener) -> Generator[_Parts]:
    """A context manager: what a service and workers alone have; the workers are not started."""
    store = Store.open(serving.folder, objects_in(serving.store))
    with suppress(Unavailable):  # another start will do
        store.clear(time.time() - _LEFTOVERS_SECONDS)
    url = serving.database or f"sqlite:///{store.folder / 'jobs.db'}"
    database, limits = Database(url), serving.limits
    confinement = probe()
    for missing, present in (("the network", confinement.network), ("files of others", confinement.files)):
        if not present:
            listener(Warned(f"this system can't keep compilations from {missing} (docs/service.md)"))
    leases = Leases(database, limits.lease_seconds, limits.attempts)
    config = Config(os.getpid(), url, str(store.folder), store=serving.store, limits=limits)
    try:
        yield _Parts(database, store, confinement, Supervisor(leases, serving.workers, config))
    finally:
        database.close()


def _check_access(serving: Serving, is_local: bool) -> None:
    if serving.certificate is not None:
        serving.certificate.check()
    if is_local:
        return
    if not serving.tokens.owners:
        raise BadInput(f"{serving.host} can be reached by others: give --tokens, or serve on 127.0.0.1")
    if serving.certificate is None and not serving.insecure:
        raise BadInput(
            f"{serving.host} can be reached by others, who could read tokens and models on their way: give"
            " --certificate and --key, or say --insecure if a proxy before the service encrypts"
        )


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


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ``BadInput``."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        end = socket.create_server((host, port), family=family, backlog=_CONNECTIONS)
        # For its connections, too: asyncio asks for it for sockets of its own only, and an answer in two pieces would
        # wait 40 ms for the client's acknowledgement of the first one.
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return end
    except OSError as error:
        raise BadInput(f"{shown(host)}, port {port} can't be served on: {reason(error)}") from error


def _serve(service: Service, end: socket.socket, certificate: Certificate | None, began: Callable[[str], None]) -> None:
    host, port = end.getsockname()[:2]
    config = uvicorn.Config(
        make_app(service),
        log_level="warning",
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
        server_header=False,
        ssl_certfile=None if certificate is None else str(certificate.chain),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again after it has ended
    scheme = "http" if certificate is None else "https"
    began(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")
    uvicorn.Server(config).run(sockets=[end])


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the server has ended, and its workers end next."""
