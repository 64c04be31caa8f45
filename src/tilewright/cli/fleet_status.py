"""``tilewright fleet status``: the devices of a fleet, what they do, and who waits for them."""

import argparse
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tilewright.base import fields
from tilewright.base.sizes import format_size
from tilewright.cli.fleet_options import add_address, fleet_of
from tilewright.cli.output import emit
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which fleet."""
    add_address(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Ask, and show."""
    with fleet_of(options) as fleet:
        status = fleet.status()
    if options.json:
        emit({"action": "status", "fleet": options.fleet, **status})
        return Status.DONE
    devices = [fields.mapping(member) for member in fields.items(status["devices"])]
    console.print(table_of(devices) if devices else "no devices", highlight=False)
    for waiting in map(fields.mapping, fields.items(status["queue"])):
        said = f"{waiting['user']} waits for {waiting['key']}, priority {waiting['priority']}"
        seconds = fields.number(waiting["seconds"])
        console.print(f"{said}, since {seconds:.0f} s", highlight=False, markup=False, soft_wrap=True)
    return Status.DONE


def table_of(members: list[dict[str, object]]) -> Table:
    """One row for each device of ``fleet.status()``."""
    table = Table(title="Devices")
    for heading in ("name", "key"):  # what other verbs are given: whole on a narrow terminal
        table.add_column(heading, no_wrap=True)
    for heading in ("state", "target", "machine"):
        table.add_column(heading, overflow="fold")
    for heading in ("done", "lost", "seen"):
        table.add_column(heading, justify="right", no_wrap=True)
    for member in members:
        device = fields.mapping(member["device"])
        table.add_row(
            str(device["name"]),
            str(device["key"]),
            state_of(member),
            _target(device),
            _machine(device),
            str(member["finished"]),
            str(member["lost"]),
            f"{fields.number(member['seen_seconds']):.1f} s",
        )
    return table


def _machine(device: Mapping[str, object]) -> str:
    """Processors, memory, governor and temperature, as far as the device says them."""
    celsius = fields.numbers(device["machine"]).get("celsius")
    cores = fields.whole(device["cores"])
    parts = (
        "1 core" if cores == 1 else f"{cores} cores",
        format_size(fields.whole(device["memory_bytes"])) if device["memory_bytes"] else "",
        str(device["governor"]),
        "" if celsius is None else f"{celsius:.0f} °C",
    )
    return ", ".join(filter(None, parts))


def _target(device: Mapping[str, object]) -> str:
    """What it is; of an emulated one, also that it is one."""
    return f"{device['target']} (simulated)" if device["simulated"] else str(device["target"])


def state_of(member: dict[str, object]) -> str:
    """``free``, who has it and for how long at most, or ``suspect``."""
    if member["user"] is not None:
        return f"{member['user']}, {fields.number(member['seconds_left']):.0f} s"
    return "free" if member["suspect_seconds"] is None else f"suspect, {fields.number(member['suspect_seconds']):.0f} s"
