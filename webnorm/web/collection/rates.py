"""How often somebody may ask: bounds for each client and for all together, in memory alone.

A client is known by a hash of its address with a salt that ends with the process: nothing that is kept says
who it was, and after an hour not even that is kept.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from collections import Counter, deque

WINDOW_S = 3600.0
# Bits of an IPv6 address that are one customer's network.
_NETWORK = 64


class RateLimits:
    """Bounds of requests in an hour. What it keeps is no more than the bound of all."""

    def __init__(self, each: int, overall: int) -> None:
        self._each, self._all = each, overall
        self._salt = secrets.token_bytes(32)
        self._taken: deque[tuple[float, bytes]] = deque()
        self._counts: Counter[bytes] = Counter()

    def wait_s(self, address: str) -> float:
        """0 where a client may ask now, which is counted; else in how many seconds it may again."""
        now = time.monotonic()
        while self._taken and self._taken[0][0] <= now - WINDOW_S:
            _, gone = self._taken.popleft()
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]
        client = self._client(address)
        if len(self._taken) >= self._all:
            return self._taken[0][0] + WINDOW_S - now
        if self._counts[client] >= self._each:
            return next(when for when, who in self._taken if who == client) + WINDOW_S - now
        self._taken.append((now, client))
        self._counts[client] += 1
        return 0.0

    def _client(self, address: str) -> bytes:
        return hashlib.blake2b(network(address).encode(), key=self._salt, digest_size=16).digest()


def network(address: str) -> str:
    """The address of an IPv4 client, and the network of one of IPv6, which has addresses without number; what
    is no address is taken as it is.
    """
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((int(known), _NETWORK), strict=False))
