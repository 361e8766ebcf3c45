"""Addresses of this machine in its local networks, and a certificate for them."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from webnorm import system
from webnorm.errors import WebnormError, shown
from webnorm.serving import Certificate

_PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
# An address for documentation (RFC 5737), which no machine has.
_ELSEWHERE = ("192.0.2.1", 9)
# The request for an interface's address, and the size of its argument, of Linux and of macOS.
_SIOCGIFADDR = {"linux": (0x8915, 40), "darwin": (0xC0206921, 32)}
# A phone's clock may be wrong by hours.
_MARGIN = timedelta(days=1)
_EXTRA = "webnorm[lan]"


def chosen_addresses(host: str | None) -> list[str]:
    """Return the address that the user named, or all private IPv4 addresses of this machine.

    The address of the default route is the first. Raises WebnormError if there is none.
    """
    if host is None:
        found = [one for one in dict.fromkeys(_own_addresses()) if _is_private(one)]
        if not found:
            networks = ", ".join(map(str, _PRIVATE))
            raise WebnormError(
                f"--lan: this machine has no address in {networks}; join the phone's network, or name an "
                "address of this machine with --host"
            )
        return found
    try:
        named = IPv4Address(host)
    except ValueError:
        named = IPv4Address(0)
    if named.is_unspecified or named.is_multicast:
        raise WebnormError(f"--host is {shown(host)}; expected an IPv4 address of this machine")
    return [str(named)]


def _is_private(address: str) -> bool:
    return any(IPv4Address(address) in network for network in _PRIVATE)


def _own_addresses() -> Iterator[str]:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        # This only chooses a route: a datagram socket sends nothing when it connects.
        way_out.connect(_ELSEWHERE)
        yield way_out.getsockname()[0]
    yield from _interface_addresses()
    # Windows gives the addresses of all interfaces here.
    with suppress(OSError):
        yield from socket.gethostbyname_ex(socket.gethostname())[2]


def _interface_addresses() -> Iterator[str]:
    """Yield the first address of each interface, on Linux and macOS."""
    if sys.platform not in _SIOCGIFADDR:
        return
    # Windows lacks this module.
    import fcntl

    request, size = _SIOCGIFADDR[sys.platform]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            # An interface without an IPv4 address answers with an error.
            with suppress(OSError):
                found = fcntl.ioctl(asking, request, struct.pack(f"{size}s", name.encode()[:15]))
                yield socket.inet_ntoa(found[20:24])


def cryptography() -> Any:
    """Return the module that makes certificates. Raises Unavailable if it is missing."""
    return system.library("cryptography.x509", "--lan", _EXTRA, "CertificateBuilder")


def qr_codes() -> Any:
    """Return the module that makes QR codes. Raises Unavailable if it is missing."""
    return system.library("segno", "--lan", _EXTRA, "make_qr")


def new_certificate(addresses: Sequence[str]) -> Certificate:
    """Return a new certificate for some addresses, signed with its own key."""
    x509 = cryptography()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webnorm verify --lan")])
    names = [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _MARGIN)
        .not_valid_after(now + _MARGIN)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # Safari requires it.
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fingerprint = made.fingerprint(hashes.SHA256()).hex(":").upper()
    return Certificate(made.public_bytes(serialization.Encoding.PEM), secret, fingerprint)
