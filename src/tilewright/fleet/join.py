"""Joins this machine to a fleet, again and again: Dask's workers end when their scheduler does.

One worker with one thread is one device. It has no nanny: whoever kills this process takes the device away, and a
service manager brings it back.
"""

import asyncio
from collections.abc import Callable

import dask
from distributed import Security, Worker

from tilewright.fleet.access import Access
from tilewright.fleet.device import Device, DevicePlugin
from tilewright.fleet.inventory import Inventory
from tilewright.fleet.scheduler import INVENTORY, NO_PAGE, SETTINGS

FIRST_PAUSE = 0.5
LAST_PAUSE = 5.0
"""Seconds between two attempts that fail: the first, and the most, as each is twice as long as the one before."""
_PATIENCE = "10s"

Say = Callable[[str], None]


async def join(access: Access, inventory: Inventory, device: Device, say: Say, host: str | None = None) -> None:
    """Be a device until cancelled, and close it. ``host``: the address under which others reach it; ``say`` is told of
    what changes.

    Raises ``FleetAuthError`` and ``BadInput`` as ``Access.security`` does.
    """
    security, pause = access.security(), FIRST_PAUSE
    (device.folder / "dask").mkdir(exist_ok=True)
    try:
        while True:
            pause = await _stay(access, security, inventory, device, say, host, pause)
    finally:
        device.close()


async def _stay(
    access: Access, security: Security, inventory: Inventory, device: Device, say: Say, host: str | None, pause: float
) -> float:
    """Be a device until the scheduler is gone, and for a pause; returns the next pause."""
    await _until_served(access, say)
    try:
        with dask.config.set(SETTINGS):
            worker = Worker(
                str(access.address),
                nthreads=1,
                name=inventory.name,
                security=security,
                protocol="tls" if access.address.is_encrypted else "tcp",
                host=host or ("127.0.0.1" if access.address.is_local else None),
                local_directory=str(device.folder / "dask"),
                dashboard=False,
                dashboard_address=NO_PAGE,
                death_timeout=_PATIENCE,
                memory_limit=0,
                plugins=(DevicePlugin(device),),
                startup_information={INVENTORY: lambda _: inventory.message()},
            )
            async with worker:
                say(f"{inventory.name} joined {access.address}")
                pause = FIRST_PAUSE
                await worker.finished()
        say(f"{access.address} is gone")
    except (OSError, TimeoutError, RuntimeError) as error:  # RuntimeError: Dask's, for any fault in starting
        say(f"{access.address} can't be joined: {_cause(error, inventory.name)}")
    device.end()
    await asyncio.sleep(pause)
    return min(2 * pause, LAST_PAUSE)


async def _until_served(access: Access, say: Say) -> None:
    """Wait until something listens. To be refused costs nothing, so these pauses stay short."""
    if not await asyncio.to_thread(access.refuses):
        return
    say(f"nothing listens at {access.address} yet")
    while await asyncio.to_thread(access.refuses):
        await asyncio.sleep(FIRST_PAUSE)


def _cause(error: Exception, name: str) -> str:
    if isinstance(error, TimeoutError):
        return "nobody answers there, or the certificates are not of one authority"
    cause = str(error.__cause__ or error)
    return f"it has a device {name} already; choose another --name" if "name taken" in cause else cause
