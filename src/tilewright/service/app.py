"""The API over HTTP. Its description is at ``/openapi.json``.

    POST   /v1/jobs?target=...          a model as the body; 202 and the job
    GET    /v1/jobs                     the newest jobs of the token
    GET    /v1/jobs/{id}                a job          GET /v1/jobs/{id}/events    its changes, as server-sent events
    DELETE /v1/jobs/{id}                cancel it
    GET    /v1/artifacts/{sha256}       an artifact that a job of the token made
    GET    /v1/limits   /v1/health      GET /    a page

Errors are ``{"error": {"kind": ..., "text": ...}}``, with the kind and the text of the compiler's own errors.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tilewright import __version__
from tilewright.base.errors import MOST_CHARACTERS, BadInput, TilewrightError
from tilewright.base.names import bounded
from tilewright.service import bundle, page
from tilewright.service.confined import Confinement
from tilewright.service.jobs import Job, Jobs, Submission
from tilewright.service.limits import Limits, QuotaExceeded, StoreFull, TooLarge, Unavailable
from tilewright.service.objects import Kind, Stream
from tilewright.service.requests import Chosen, Given, chosen
from tilewright.service.store import Store, Upload, check_hash
from tilewright.service.surroundings import Surroundings
from tilewright.service.tokens import Owner, Tokens

_STREAM_SECONDS: Final = 0.3
_COMMENT_EVERY: Final = 50
"""A stream in which nothing happens has a comment after so many looks, so that proxies keep it open."""
_LISTED: Final = 50
_MOST_LISTED: Final = 1000
_KEPT: Final = 1024
"""Jobs whose text is kept."""
_USUAL: Final = Given()
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PIECE: Final = 1 << 20
_STATUS: Final = ((QuotaExceeded, 429), (TooLarge, 413), (StoreFull, 507), (Unavailable, 503), (BadInput, 400))
_BINARY: Final = "application/octet-stream"
_BODY: Final = {"required": True, "content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}}}


@dataclass(frozen=True, slots=True)
class Service:
    """What the API stands on. ``only_local``: it is bound to a loopback address."""

    jobs: Jobs
    store: Store
    tokens: Tokens
    limits: Limits
    confinement: Confinement
    surroundings: Surroundings = field(default_factory=Surroundings)
    only_local: bool = True


def make_app(service: Service) -> FastAPI:
    """The application."""
    title, summary = "Tilewright", "Compiles models to artifacts."
    # The usual pages for people load scripts of another site.
    app = FastAPI(title=title, version=__version__, summary=summary, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, service=service)
    app.add_exception_handler(TilewrightError, _refusal)
    app.add_exception_handler(HTTPException, _refusal)
    app.add_exception_handler(ClientDisconnect, _refusal)
    app.add_exception_handler(RequestValidationError, _refusal)

    # A look at a token is shorter than a way to a thread and back, which all other work takes.
    async def caller(request: Request) -> Owner:
        owner = service.tokens.owner(_bearer(request))
        if owner is None:
            raise HTTPException(401, "give a token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        return owner

    async def viewer(request: Request) -> Owner:
        """A browser asks for a token as the password; that serves to look only, as other sites could use it."""
        owner = service.tokens.owner(_bearer(request) or _password(request))
        if owner is None:
            raise HTTPException(401, "give a token as the password", {"WWW-Authenticate": 'Basic realm="Tilewright"'})
        return owner

    _add_jobs(app, service, caller)
    _add_events(app, service, caller)
    _add_results(app, service, viewer)
    return app


Caller = Callable[[Request], Awaitable[Owner]]


def _add_jobs(app: FastAPI, service: Service, caller: Caller) -> None:
    jobs, uploads = service.jobs, asyncio.Semaphore(service.limits.uploads)

    @app.post("/v1/jobs", status_code=202, openapi_extra={"requestBody": _BODY})
    async def submit(
        request: Request,
        owner: Annotated[Owner, Depends(caller)],
        target: str = _USUAL.target,
        precision: str = _USUAL.precision,
        math: str = _USUAL.math,
        superopt: str = _USUAL.superopt,
        checks: str = _USUAL.checks,
        threads: int | None = None,
        memory_limit: str | None = None,
        shape: Annotated[list[str], Query()] = [],  # noqa: B006 -- FastAPI copies it
        bound: Annotated[list[str], Query()] = [],  # noqa: B006 -- the same
        name: str = "",
    ) -> Response:
        """Submit a model (the body: ONNX, or a zip with it and its weights).

        ``shape=NAME:1,3,n`` and ``bound=NAME:512`` may be given repeatedly.
        """
        given = Given(target, precision, math, superopt, checks, threads, memory_limit, shape, bound)

        def admitted() -> Chosen:
            options = chosen(given)
            jobs.check_quota(owner)
            return options

        options = await run_in_threadpool(admitted)

        def submitted(upload: Upload) -> Response:
            with upload:
                model = _kept(upload, service.limits)
            submission = Submission(options.submission(model), model, options.text(), name)
            return JSONResponse(shown(jobs.submit(owner, submission, service.store.has_artifact)), 202)

        return await _received(request, service, uploads, submitted)

    @app.get("/v1/jobs")
    def listed(
        owner: Annotated[Owner, Depends(caller)], count: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = _LISTED
    ) -> Response:
        """The newest jobs, at most ``count``."""
        found = ",".join(map(_text, jobs.listed(owner.name, count)))
        return Response(f'{{"jobs":[{found}]}}', media_type="application/json")

    @app.get("/v1/jobs/{job}")
    def found(job: str, owner: Annotated[Owner, Depends(caller)]) -> Response:
        """A job."""
        return JSONResponse(shown(_known(jobs.find(owner.name, job))))

    @app.delete("/v1/jobs/{job}")
    def cancel(job: str, owner: Annotated[Owner, Depends(caller)]) -> Response:
        """Cancel a job; one that has ended stays as it is."""
        return JSONResponse(shown(_known(jobs.cancel(owner.name, job))))


def _add_events(app: FastAPI, service: Service, caller: Caller) -> None:
    jobs, streams = service.jobs, asyncio.Semaphore(service.limits.streams)

    @app.get("/v1/jobs/{job}/events", response_class=StreamingResponse)
    async def events(job: str, owner: Annotated[Owner, Depends(caller)]) -> StreamingResponse:
        """Server-sent events ``job``: the job, now and after each change, until it has ended."""
        first = _known(await run_in_threadpool(jobs.find, owner.name, job))
        if streams.locked():
            raise HTTPException(429, "too many streams of events are open")

        async def told() -> AsyncGenerator[str]:
            async with streams:
                current, told_of, silent = first, "", 0
                while True:
                    if (text := json.dumps(shown(current))) != told_of:
                        told_of, silent = text, 0
                        yield f"event: job\ndata: {text}\n\n"
                    if current.state.is_final:
                        return
                    silent += 1
                    if silent % _COMMENT_EVERY == 0:
                        yield ": still there\n\n"
                    await asyncio.sleep(_STREAM_SECONDS)
                    with suppress(Unavailable):  # the stream stays open until the database is back
                        current = await run_in_threadpool(jobs.find, owner.name, job) or current

        return StreamingResponse(told(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _add_results(app: FastAPI, service: Service, viewer: Caller) -> None:
    jobs, limits = service.jobs, service.limits

    @app.get("/v1/artifacts/{sha256}", response_class=FileResponse)
    def artifact(sha256: str, owner: Annotated[Owner, Depends(viewer)]) -> Response:
        """An artifact."""
        check_hash(sha256)
        found = service.store.artifact(sha256) if jobs.may_read(owner.name, sha256) else None
        return _file(found, f"{sha256[:12]}.tw")

    @app.get("/v1/limits")
    def limited(owner: Annotated[Owner, Depends(viewer)]) -> dict[str, object]:
        """What a request, a job and this token may take, and how compilations are confined."""
        return {"limits": asdict(limits), "quota": asdict(owner.quota), "confinement": asdict(service.confinement)}

    @app.get("/v1/health")
    def health() -> Response:
        """Whether the database answers, the jobs that have not ended, and the workers that run."""
        found = {"version": __version__, "workers": service.surroundings.workers(), "jobs": jobs.count()}
        return JSONResponse(found)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def shown_page(owner: Annotated[Owner, Depends(viewer)]) -> HTMLResponse:
        text = page.page(owner.name, jobs.listed(owner.name, _LISTED), service.surroundings)
        return HTMLResponse(text, headers={"Content-Security-Policy": page.POLICY})

    @app.get("/table", response_class=HTMLResponse, include_in_schema=False)
    def table(owner: Annotated[Owner, Depends(viewer)]) -> HTMLResponse:
        return HTMLResponse(page.live(jobs.listed(owner.name, _LISTED), service.surroundings))


@lru_cache(maxsize=_KEPT)
def _text(job: Job) -> str:
    """A job as JSON: lists are asked for again and again, and most of their jobs have ended."""
    return json.dumps(shown(job), ensure_ascii=False, separators=(",", ":"))


def shown(job: Job) -> dict[str, object]:
    """A job as JSON."""
    # Not by ``asdict``, which copies each value: lists of jobs would keep others waiting.
    plain: dict[str, object] = {name: getattr(job, name) for name in _PLAIN}
    error = None if job.error is None else {"kind": job.error_kind, "text": job.error}
    progress = None if job.step is None else {"step": job.step, "done": job.done, "total": job.total}
    options: object = json.loads(job.options)
    return {**plain, "state": job.state.value, "options": options, "progress": progress, "error": error}


_APART: Final = frozenset({"owner", "error_kind", "step", "done", "total", "state", "options", "error"})
_PLAIN: Final = tuple(part.name for part in fields(Job) if part.name not in _APART)


async def _received(
    request: Request, service: Service, uploads: asyncio.Semaphore, submitted: Callable[[Upload], Response]
) -> Response:
    """What ``submitted`` answers when the model in the body has arrived. What is too large is refused as soon as known.

    Files are written and hashed by threads, as this one serves everybody; a small model takes one way to a thread.
    """
    limits, store = service.limits, service.store
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, "send the model as it is, not compressed")
    length = request.headers.get("content-length", "0")
    announced = int(length) if length.isdecimal() and len(length) < 20 else limits.body_bytes + 1
    if announced > limits.body_bytes:
        raise TooLarge(f"the body has {length[:20]} bytes, and this service takes {limits.body_bytes}")
    if uploads.locked():
        raise HTTPException(429, f"{limits.uploads} models are being received; try again", {"Retry-After": "1"})
    upload: Upload | None = None
    rest = bytearray()
    try:
        async with uploads, _within(limits.body_seconds):
            store.check_room(announced, limits.free_bytes)
            async for data in request.stream():
                rest += data
                if len(rest) >= _PIECE:
                    upload = await run_in_threadpool(_added, service, upload, bytes(rest))
                    rest.clear()
        return await run_in_threadpool(lambda: submitted(_added(service, upload, bytes(rest))))
    finally:
        if upload is not None:
            await run_in_threadpool(upload.close)


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    """A context manager: a body arrives. Raises ``HTTPException`` if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {seconds:g} s") from error


def _added(service: Service, upload: Upload | None, data: bytes) -> Upload:
    """The upload with the next piece; None: the first one. Raises ``StoreFull``, ``TooLarge`` and ``OSError``."""
    service.store.check_room(len(data), service.limits.free_bytes)
    opened = upload or service.store.upload(Kind.MODEL, service.limits.body_bytes)
    try:
        opened.add(data)
    except BaseException:
        opened.close()
        raise
    return opened


def _kept(upload: Upload, limits: Limits) -> str:
    """The hash of the file, after a look at it. Raises ``BadInput`` if it is empty, or a zip that is refused."""
    if not upload.size:
        raise BadInput("the body is empty: send an ONNX model, or a zip with one and its weights")
    upload.flush()
    if bundle.is_bundle(upload.path):
        bundle.check(upload.path, limits.unpacked_bytes)
    return upload.keep()


def _file(content: Path | Stream | None, name: str) -> Response:
    match content:
        case Path():
            return FileResponse(content, media_type=_BINARY, filename=name)
        case Stream(size, pieces):
            headers = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{name}"'}
            return StreamingResponse(pieces, media_type=_BINARY, headers=headers)
        case None:
            raise HTTPException(404, "there is no such artifact of this token's jobs; submit the model again")


def _known(job: Job | None) -> Job:
    if job is None:
        raise HTTPException(404, "there is no such job of this token")
    return job


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _password(request: Request) -> str | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


class Guard:
    """Refuses what pages of other sites make a browser send: they could use a service that asks for no token."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._is_open = service.only_local and not service.tokens.owners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application do it."""
        fault = self._fault(Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if fault is None else _answer(403, "Refused", fault))(scope, receive, send)

    def _fault(self, headers: Headers) -> str | None:
        try:
            host, origin = urlsplit(f"//{headers.get('host', '')}"), urlsplit(headers.get("origin", ""))
        except ValueError:
            return "the header Host or Origin is malformed"
        if self._is_open and host.hostname not in _LOOPBACK:
            return "this service asks for no token, so it is there for loopback addresses only"
        if "origin" in headers and origin.netloc != host.netloc:
            return "requests of other sites' pages are refused"
        return None


async def _refusal(_request: Request, error: Exception) -> Response:
    match error:
        case HTTPException():
            return _answer(error.status_code, "Refused", error.detail, error.headers)
        case ClientDisconnect():
            return _answer(400, "Refused", "the client left before its model had arrived")
        case RequestValidationError():
            faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()]
            return _answer(422, BadInput.__name__, bounded("; ".join(faults), MOST_CHARACTERS))
        case _:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            again = {"Retry-After": "1"} if status in (429, 503) else None
            return _answer(status, type(error).__name__, str(error), again)


def _answer(status: int, kind: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    safe = {"X-Content-Type-Options": "nosniff", **(headers or {})}
    return JSONResponse({"error": {"kind": kind, "text": text}}, status, safe)
