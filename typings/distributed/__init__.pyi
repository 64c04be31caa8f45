"""The part of Dask distributed 2026.8 that Tilewright uses, typed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from ssl import SSLContext
from typing import Generic, ParamSpec, Self, TypeVar

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

Given = ParamSpec("Given")
Result = TypeVar("Result")

class Security:
    def get_connection_args(self, role: str) -> Mapping[str, SSLContext | None]: ...
    def __init__(
        self,
        *,
        require_encryption: bool,
        tls_ca_file: str = ...,
        tls_client_cert: str = ...,
        tls_client_key: str = ...,
        tls_scheduler_cert: str = ...,
        tls_scheduler_key: str = ...,
        tls_worker_cert: str = ...,
        tls_worker_key: str = ...,
    ) -> None: ...

class Future(Generic[Result]):
    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None: ...
    def done(self) -> bool: ...
    def result(self, timeout: float) -> Result: ...
    def cancel(self) -> None: ...

class Client:
    id: str
    status: str
    scheduler: object
    def __init__(
        self, address: str, *, security: Security, timeout: float, set_as_default: bool, name: str
    ) -> None: ...
    def close(self, timeout: float) -> None: ...
    def sync(self, func: Callable[Given, Awaitable[Result]], *args: Given.args, **kwargs: Given.kwargs) -> Result: ...
    def submit(
        self, func: Callable[..., Result], *args: object, key: str, workers: Sequence[str], pure: bool
    ) -> Future[Result]: ...

class Stream:
    def send(self, *messages: Mapping[str, object]) -> None: ...

class WorkerState:
    extra: Mapping[str, object]
    last_seen: float

class _Server:
    address: str
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def finished(self) -> None: ...

class Scheduler(_Server):
    handlers: dict[str, Callable[..., object]]
    stream_comms: Mapping[str, Stream]
    workers: Mapping[str, WorkerState]
    def __init__(
        self,
        *,
        host: str,
        port: int,
        protocol: str,
        security: Security,
        dashboard: bool,
        dashboard_address: str,
        plugins: Sequence[SchedulerPlugin],
    ) -> None: ...

class Worker(_Server):
    stream_handlers: dict[str, Callable[..., object]]
    plugins: Mapping[str, WorkerPlugin]
    def __init__(
        self,
        address: str,
        *,
        nthreads: int,
        name: str,
        security: Security,
        protocol: str,
        host: str | None,
        local_directory: str,
        dashboard: bool,
        dashboard_address: str,
        death_timeout: str,
        memory_limit: int,
        plugins: Sequence[WorkerPlugin],
        startup_information: Mapping[str, Callable[[Worker], object]],
    ) -> None: ...

def get_worker() -> Worker: ...
