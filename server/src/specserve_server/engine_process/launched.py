"""The other side of `launch`: how a process begins that the server has started."""

from __future__ import annotations

import signal
import socket
import sys

from specserve_checks.struct_tables import build_struct_tables
from specserve_server.engines.load import trace_crashes


def begin() -> socket.socket:
    """This process's end of the socket between it and the server. Signals of the terminal and of supervisors, which
    reach all processes of a service, are left to the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    trace_crashes()
    build_struct_tables()
    return socket.socket(fileno=int(sys.argv[1]))
