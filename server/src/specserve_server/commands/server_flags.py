"""The flags of `serve` that are fields of ServerConfig, by subject. Each has the name of its field."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING, NamedTuple

from specserve_server.cli.option_help import field_help
from specserve_server.config import ACCESS_LOGS, LOG_FORMATS, LOG_LEVELS, TOOL_FORMS, ServerConfig

if TYPE_CHECKING:
    from argparse import _ArgumentGroup
    from collections.abc import Callable

    from specserve_server.cli.flag_groups import FlagGroups


class Flag(NamedTuple):
    field: str
    what: str
    metavar: str | None = None
    type: Callable[[str], object] = str
    choices: tuple[str, ...] | None = None
    is_repeatable: bool = False
    is_switch: bool = False
    has_opposite: bool = False
    """A switch that may be given as --no-..., too: its default depends."""


FLAGS = {
    "network": (
        Flag("host", "the address to listen on; the default is reachable from this machine only", "ADDRESS"),
        Flag("port", "0 picks a free one", "N", type=int),
        Flag("uds", "listen on a unix socket, in place of host and port", "PATH"),
        Flag("uds_mode", "permissions of the socket", "MODE"),
        Flag("root_path", "the prefix of all paths behind a proxy", "/PREFIX"),
        Flag(
            "cors_origin",
            "pages of this origin may use the server from a browser; * for all; may be repeated",
            "ORIGIN",
            is_repeatable=True,
        ),
        Flag("page", "serve the playground at /, where specserve-page is installed", has_opposite=True),
        Flag(
            "sse_keep_alive", "send a comment in a stream after this many seconds without events", "SECONDS", type=float
        ),
    ),
    "security": (
        Flag(
            "api_key",
            "clients must send it as a bearer token or as x-api-key; /health and /ping need none; may be repeated",
            "KEY",
            is_repeatable=True,
        ),
        Flag("api_key_file", "lines of KEY or NAME KEY; read again when the server gets SIGHUP", "FILE"),
        Flag("tls_cert", "serve HTTPS with this certificate, in PEM form", "FILE"),
        Flag("tls_key", "its key", "FILE"),
        Flag("tls_ca", "clients need a certificate that one of these signed", "FILE"),
    ),
    "limits": (
        Flag("drain_seconds", "how long requests may run after SIGTERM", "SECONDS", type=float),
        Flag(
            "drain_wait",
            "before that, how long new requests are served still, while /health is 503 already",
            "SECONDS",
            type=float,
        ),
        Flag("max_body_bytes", "maximum size of a request body", "BYTES", type=int),
        Flag("strict_fields", "refuse fields of requests that nobody defines", is_switch=True),
        Flag("request_timeout", "abort requests that run longer", "SECONDS", type=float),
        Flag(
            "max_requests_per_minute",
            "POST requests of one API key, or without keys of one client address; more are answered 429",
            "N",
            type=int,
        ),
        Flag("max_concurrent_requests_per_key", "the same for requests that run at once", "N", type=int),
    ),
    "logging": (
        Flag("log_level", "what of the log is written, from this level on", choices=LOG_LEVELS),
        Flag("log_format", "json: every line on standard error is an object", choices=LOG_FORMATS),
        Flag(
            "otlp_traces_endpoint",
            "send OpenTelemetry traces of requests there, such as http://localhost:4318/v1/traces; needs "
            "specserve[otel]",
            "URL",
        ),
        Flag("access_log", "the form of a line for each request on standard error", choices=ACCESS_LOGS),
    ),
    "engine": (
        Flag(
            "engine_process",
            "run the engine in a process of its own, so that HTTP and JSON do not take its interpreter",
            has_opposite=True,
        ),
        Flag(
            "http_processes",
            "as many processes share the port and the work on requests; 2 or more imply --engine-process",
            "N",
            type=int,
        ),
    ),
    "model": (
        Flag(
            "served_model_name",
            "the model's name in the API; may be repeated: the first is used in metrics",
            "NAME",
            is_repeatable=True,
        ),
        Flag("chat_template", "file of another chat template than the tokenizer's", "FILE"),
        Flag(
            "tool_form",
            "for a model whose chat template has no place for tools: describe them in the system message and read "
            "calls in this form",
            choices=TOOL_FORMS,
        ),
    ),
}  # fmt: skip
"""By subject."""


def add_server_flags(groups: FlagGroups) -> None:
    for subject, flags in FLAGS.items():
        for flag in flags:
            add_flag(groups[subject], flag)


def add_flag(group: _ArgumentGroup, flag: Flag) -> None:
    """The value is None where it is not given."""
    name, has_choices = f"--{flag.field.replace('_', '-')}", flag.choices is not None
    help = field_help(ServerConfig, flag.field, flag.what, has_choices=has_choices)
    if flag.has_opposite:
        group.add_argument(name, action=BooleanOptionalAction, help=help)
    elif flag.is_switch:
        group.add_argument(name, action="store_true", default=None, help=help)
    elif flag.is_repeatable:
        group.add_argument(name, action="append", metavar=flag.metavar, help=help)
    else:
        group.add_argument(name, type=flag.type, choices=flag.choices, metavar=flag.metavar, help=help)
