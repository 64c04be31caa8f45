"""``tilewright fleet doctor``: what stands in the way of a fleet, and what would help."""

import argparse
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright import __version__
from tilewright.base import fields
from tilewright.cli.fleet_options import access_of, add_address, fleet_of
from tilewright.cli.output import emit
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.fleet.access import Access

_SOON_DAYS = 30
_SLOW_MILLISECONDS = 100.0
_UNSEEN_SECONDS = 10.0
_HOT_CELSIUS = 80.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which fleet."""
    add_address(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Look, and say. Raises ``FleetError`` or ``FleetAuthError`` if the fleet can't be reached."""
    with fleet_of(options) as fleet:
        begin = time.perf_counter()
        status = fleet.status()
        milliseconds = (time.perf_counter() - begin) * 1e3
    problems = [*_of_access(access_of(options)), *_of_fleet(status, milliseconds)]
    devices = len(fields.items(status["devices"]))
    if options.json:
        report = {"fleet": options.fleet, "devices": devices, "milliseconds": milliseconds, "problems": problems}
        emit({"action": "doctor", **report})
        return Status.DONE
    console.print(f"{devices} devices; a question takes {milliseconds:.1f} ms", highlight=False)
    for problem in problems or ["nothing stands in the way"]:
        console.print(problem, highlight=False, markup=False, soft_wrap=True)
    return Status.DONE


def _of_access(access: "Access") -> Iterator[str]:
    from tilewright.fleet.certificates import expires

    if access.tls is not None:
        days = (expires(access.tls) - datetime.now(UTC)).days
        if days < _SOON_DAYS:
            yield f"the certificate in {access.tls} ends in {days} days: make a new one by tilewright fleet certs"
    elif not access.address.is_local:
        yield "nothing is encrypted, and nobody is asked for a certificate: whoever reaches it runs code on all devices"


def _of_fleet(status: Mapping[str, object], milliseconds: float) -> Iterator[str]:
    if milliseconds > _SLOW_MILLISECONDS:
        yield f"a question takes {milliseconds:.0f} ms: measuring many short kernels will wait for the network"
    members = [fields.mapping(member) for member in fields.items(status["devices"])]
    if not members:
        yield "there are no devices: run tilewright fleet join on them"
    known = {str(fields.mapping(member["device"])[name]) for member in members for name in ("name", "key")}
    for waiting in map(fields.mapping, fields.items(status["queue"])):
        if waiting["key"] not in known:
            yield f"{waiting['user']} waits for {waiting['key']}, and no device is called so"
    for member in members:
        yield from _of_device(member, fields.mapping(member["device"]))


def _of_device(member: Mapping[str, object], device: Mapping[str, object]) -> Iterator[str]:
    name, machine = device["name"], fields.numbers(device["machine"])
    if device["version"] != __version__:
        yield f"{name} has version {device['version']}, and this is {__version__}: install one version everywhere"
    if device["governor"] not in ("", "performance"):
        yield f"{name}: the clock speed's governor is {device['governor']}: set performance, or times will vary"
    if machine.get("celsius", 0.0) > _HOT_CELSIUS:
        yield f"{name} has {machine['celsius']:.0f} degrees Celsius: it may slow down; cool it"
    if member["suspect_seconds"] is not None:
        yield f"{name} was lost several times in a row, and is leased last for a while: look at its power and network"
    if fields.number(member["seen_seconds"]) > _UNSEEN_SECONDS:
        seconds = fields.number(member["seen_seconds"])
        yield f"{name} has said nothing for {seconds:.0f} s: it hangs, or its network does"
