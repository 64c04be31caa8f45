"""``Access``: the address of a fleet's scheduler, and the certificate that one shows there.

    tcp://127.0.0.1:8790     this machine, without encryption: every process on it can join
    tls://10.0.0.1:8790      needs a folder of certificates (``certificates``)

A plain address of another machine is refused unless one asks for it by name.
"""

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from distributed import Security

from tilewright.base.errors import BadInput, FleetAuthError
from tilewright.base.names import shown
from tilewright.fleet.certificates import CA, CERTIFICATE, KEY

PORT = 8790
"""Where a scheduler listens unless told otherwise."""
_PROBE_SECONDS = 2.0
_ADDRESS = re.compile(r"(tcp|tls)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """``is_encrypted``: written ``tls://``; ``host`` is without brackets."""

    is_encrypted: bool
    host: str
    port: int = PORT

    @staticmethod
    def parse(text: str) -> "Address":
        """Raises ``BadInput``."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found[3] or PORT) > 65535:
            raise BadInput(f"{shown(text)} is no address of a fleet: write tls://HOST:PORT, or tcp:// on this machine")
        return Address(found[1] == "tls", found[2].strip("[]"), int(found[3] or PORT))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_encrypted else 'tcp'}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can reach it."""
        try:
            found = {info[4][0] for info in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)}
        except OSError:
            return False
        return bool(found) and all(ipaddress.ip_address(str(host).partition("%")[0]).is_loopback for host in found)


@dataclass(frozen=True, slots=True)
class Access:
    """``tls``: a folder with a certificate, its key and the authority's certificate; ``insecure``: allow a plain
    address of another machine."""

    address: Address
    tls: Path | None = None
    insecure: bool = False

    def security(self) -> Security:
        """What Dask takes. Raises ``FleetAuthError`` if the address needs a certificate and there is none, ``BadInput``
        if there is one and it does not need it."""
        if self.address.is_encrypted:
            return _encrypted(self.address, self.tls)
        if self.tls is not None:
            raise BadInput(f"{self.address} is not encrypted: write tls://, or leave the certificates out")
        if not self.insecure and not self.address.is_local:
            raise FleetAuthError(
                f"{self.address} is not this machine, and not encrypted: anybody who reaches it could run any code on"
                " the devices. Use tls:// with certificates (tilewright fleet certs), or say --insecure"
            )
        return Security(require_encryption=False)

    def refuses(self) -> bool:
        """Whether nothing listens there, by the machine's word. It is asked before Dask connects anew, whose pauses
        between attempts become longer than a scheduler takes to come back."""
        context = self.security().get_connection_args("client").get("ssl_context")
        try:
            with socket.create_connection((self.address.host, self.address.port), _PROBE_SECONDS) as end:
                if context is not None:  # the scheduler warns of who leaves before
                    context.wrap_socket(end).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False


def _encrypted(address: Address, folder: Path | None) -> Security:
    if folder is None:
        raise FleetAuthError(
            f"{address} needs a certificate: give its folder by --tls (tilewright fleet certs makes it)"
        )
    missing = [name for name in (CA, CERTIFICATE, KEY) if not (folder / name).is_file()]
    if missing:
        raise FleetAuthError(f"{folder} has no {', '.join(missing)}: give a folder that tilewright fleet certs made")
    certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
    return Security(
        require_encryption=True,
        tls_ca_file=str(folder / CA),
        tls_client_cert=certificate,
        tls_client_key=key,
        tls_scheduler_cert=certificate,
        tls_scheduler_key=key,
        tls_worker_cert=certificate,
        tls_worker_key=key,
    )
