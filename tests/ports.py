"""Ports for the servers of tests."""

from __future__ import annotations

import random
import socket

_RANGE = range(15_000, 32_000)
"""Below the ports that systems give to sockets without one. A client connects again and again to a server that a test
has killed. If the port were then given to a socket of Spark in another process, gRPC's greeting would be read there as
the length of a message, 1.3 GB."""


def free_port() -> int:
    rng = random.Random()  # not seeded: processes of tests must draw different ports
    while True:
        port = rng.choice(_RANGE)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
