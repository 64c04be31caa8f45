"""``tilewright service``: compile models for others, over HTTP."""

import argparse
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.events import Event, Warned
from tilewright.cli.fleet_options import silence
from tilewright.cli.options import file_path, positive, size, some_time
from tilewright.cli.output import emit
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.fleet.access import Access

_PACKAGES = ("fastapi", "sqlalchemy", "uvicorn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to serve and to keep files, for whom, and within which limits; or the name of a new token."""
    parser.add_argument("--folder", type=file_path, help="where models, artifacts and the database are kept")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8000, help="0: any that is free (default: %(default)s)")
    parser.add_argument("--certificate", type=file_path, metavar="FILE", help="serve with TLS: the certificate, in PEM")
    parser.add_argument("--key", type=file_path, metavar="FILE", help="the key of the certificate, in PEM")
    parser.add_argument(
        "--insecure", action="store_true", help="serve other machines without TLS: a proxy before it encrypts"
    )
    parser.add_argument("--workers", type=_count, default=1, metavar="N", help="compilations at once (default: 1)")
    parser.add_argument(
        "--workers-only", action="store_true", help="compile for a service elsewhere that has this database and store"
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="who may submit: a file, or env:NAME for a variable (default: this machine)",
    )
    parser.add_argument(
        "--database", metavar="URL", help="of SQLAlchemy, or env:NAME for a variable (default: SQLite in the folder)"
    )
    parser.add_argument(
        "--store", metavar="URL", help="where models and artifacts are: s3://BUCKET/PREFIX (default: the folder)"
    )
    parser.add_argument("--body-size", type=size, metavar="SIZE", help="maximum of a model (default: 512MiB)")
    parser.add_argument("--job-memory", type=size, metavar="SIZE", help="memory of a compilation (default: 4GiB)")
    parser.add_argument("--job-seconds", type=some_time, metavar="SECONDS", help="its time limit (default: 600)")
    parser.add_argument("--output-size", type=size, metavar="SIZE", help="maximum of an artifact (default: 2GiB)")
    parser.add_argument(
        "--lease", type=some_time, metavar="SECONDS", help="a worker that says nothing so long has died (default: 15)"
    )
    parser.add_argument("--fleet", metavar="ADDRESS", help="the page shows the devices of this fleet: tls://HOST:PORT")
    parser.add_argument("--fleet-tls", type=file_path, metavar="FOLDER", help="a certificate of that fleet")
    parser.add_argument("--records", type=file_path, metavar="FILE", help="the page counts these tuning records")
    parser.add_argument("--new-token", metavar="NAME", help="print a new token, and its line for the file of tokens")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Serve until a signal, or make a token."""
    if options.new_token is not None:
        return _new_token(options.new_token, console, as_json=options.json)
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise BadInput(f"there is no {missing[0]}: pip install 'tilewright[service]'")
    if options.folder is None:
        raise BadInput("give --folder: models, artifacts and the database are kept there")
    _serve(options, console)
    return Status.DONE


def _serve(options: argparse.Namespace, console: Console) -> None:
    from tilewright.service.limits import Limits
    from tilewright.service.server import Certificate, Serving, serve, tokens_in, variable, work
    from tilewright.service.tokens import Tokens

    given = {
        "body_bytes": options.body_size,
        "memory_bytes": options.job_memory,
        "seconds": options.job_seconds,
        "output_bytes": options.output_size,
        "lease_seconds": options.lease,
    }
    folder: Path = options.folder
    if (options.certificate is None) != (options.key is None):
        raise BadInput("--certificate and --key belong together: give both")
    serving = Serving(
        folder,
        options.host,
        options.port,
        options.workers,
        None if options.database is None else variable(options.database),
        options.store,
        Tokens({}) if options.tokens is None else tokens_in(options.tokens),
        replace(Limits(), **{name: value for name, value in given.items() if value is not None}),
        None if options.certificate is None else Certificate(options.certificate, options.key),
        insecure=options.insecure,
        fleet=_fleet(options),
        records=options.records,
    )
    errors = plain_console(stderr=True)

    def warn(event: Event) -> None:
        if isinstance(event, Warned):
            errors.print(str(event), soft_wrap=True)

    def began(url: str | None = None) -> None:
        if options.json:
            emit({"url": url, "name": None, "token": None, "line": None})
        else:
            console.print("working" if url is None else f"serving on {url}", soft_wrap=True)
        console.file.flush()

    if options.workers_only:
        work(serving, began, warn)
    else:
        serve(serving, began, warn)


def _fleet(options: argparse.Namespace) -> "Access | None":
    if options.fleet is None:
        if options.fleet_tls is not None:
            raise BadInput("--fleet-tls is the certificate for a fleet: give --fleet, too, or leave it out")
        return None
    try:
        from tilewright.fleet.access import Access, Address
    except ImportError as error:
        raise BadInput(f"a fleet needs {error.name}: pip install 'tilewright[fleet]'") from error
    access = Access(Address.parse(options.fleet), options.fleet_tls)
    access.security()  # refused now, rather than on the page
    silence()
    return access


def _new_token(name: str, console: Console, *, as_json: bool) -> int:
    from tilewright.service.tokens import generate

    token, line = generate(name)
    if as_json:
        emit({"url": None, "name": name, "token": token, "line": line})
    else:
        console.print(f"token, to be kept by {name}: {token}", soft_wrap=True)
        console.print(f"line for the file of tokens: {line}", soft_wrap=True)
    return Status.DONE


def _count(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text} is no port, from 0 to 65535")
    return int(text)
