"""The flags of `serve` that are fields of ServerConfig, by subject. Each has the name of its field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.server_config import ACCESS_LOGS

if TYPE_CHECKING:
    from specserve.cli.flag_groups import FlagGroups


def add_server_flags(groups: FlagGroups) -> None:
    add_network_flags(groups)
    add_security_flags(groups)
    add_limit_flags(groups)
    groups["logging"].add_argument(
        "--access-log", choices=ACCESS_LOGS, help="a line for each request on standard error; default: none"
    )
    groups["model"].add_argument(
        "--served-model-name", action="append", metavar="NAME",
        help="the model's name in the API; may be repeated: the first is used in metrics",
    )  # fmt: skip


def add_network_flags(groups: FlagGroups) -> None:
    group = groups["network"]
    group.add_argument("--host", help="default: 127.0.0.1, reachable from this machine only")
    group.add_argument("--port", type=int, help="default: 8000; 0 picks a free one")
    group.add_argument("--uds", metavar="PATH", help="listen on a unix socket instead of host and port")
    group.add_argument("--uds-mode", metavar="MODE", help="permissions of the socket, in octal; default: 600")
    group.add_argument("--root-path", metavar="/PREFIX", help="the prefix of all paths behind a proxy")
    group.add_argument(
        "--cors-origin", action="append", metavar="ORIGIN",
        help="pages of this origin may use the server from a browser; * for all; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--sse-keep-alive", type=float, metavar="SECONDS",
        help="send a comment in a stream after so many seconds without an event; default: never",
    )  # fmt: skip


def add_security_flags(groups: FlagGroups) -> None:
    group = groups["security"]
    group.add_argument(
        "--api-key", action="append", metavar="KEY",
        help="clients must send it as a bearer token or as x-api-key; /health and /ping need none; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--api-key-file", metavar="FILE", help="lines of KEY or NAME KEY; read again when the server gets SIGHUP"
    )
    group.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate, in PEM form")
    group.add_argument("--tls-key", metavar="FILE", help="its key; default: in the file of --tls-cert")
    group.add_argument("--tls-ca", metavar="FILE", help="clients need a certificate that one of these signed")


def add_limit_flags(groups: FlagGroups) -> None:
    group = groups["limits"]
    group.add_argument(
        "--drain-seconds", type=float, metavar="SECONDS", help="how long requests may run after SIGTERM; default: 30"
    )
    group.add_argument(
        "--max-body-bytes", type=int, metavar="BYTES", help="maximum size of a request body; default: 16 MiB"
    )
    group.add_argument(
        "--strict-fields", action="store_true", default=None, help="refuse fields of requests that nobody defines"
    )
    group.add_argument(
        "--request-timeout", type=float, metavar="SECONDS", help="abort requests that run longer; default: never"
    )
    group.add_argument(
        "--max-requests-per-minute", type=int, metavar="N",
        help="POST requests of one API key, or without keys of one client address; more are answered 429",
    )  # fmt: skip
    group.add_argument(
        "--max-concurrent-requests-per-key", type=int, metavar="N",
        help="the same for requests that run at once; default of both: no limit",
    )  # fmt: skip
