"""Frozen configuration of the HTTP server: names, defaults and bounds of [server], and their errors."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from specserve.errors import ConfigError
from specserve_checks.allowed_values import AtLeast, Between, Form, OneOf, Seconds, Unset, check_fields

ROOT_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)+")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
ENDPOINT = re.compile(r"https?://[^\s/?#]+\S*")
ACCESS_LOGS = ("none", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
MAX_HTTP_PROCESSES = 64
TOOL_FORMS = (
    *("hermes", "mistral", "mistral-v11", "llama3", "granite", "phi4-mini", "qwen3-coder", "olmo3", "tool-code"),
    *("functiongemma", "gemma4", "harmony"),
)


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: Annotated[int, Between(0, 65535)] = 8000
    uds: Annotated[str | None, Unset("none")] = None
    """The path of a unix socket to listen on, in place of host and port."""
    uds_mode: Annotated[str, Form("three octal digits")] = "600"
    """The socket's permissions, in octal."""
    root_path: Annotated[str, Form("begins with a slash and ends without one")] = ""
    """The prefix of all paths behind a proxy."""
    cors_origin: Annotated[str | tuple[str, ...] | None, Form("* or scheme, host and port"), Unset("none")] = None
    """Origins whose pages may use the server from a browser; `*` for all."""
    tls_cert: Annotated[str | None, Unset("none")] = None
    tls_key: Annotated[str | None, Unset("in the file of tls_cert")] = None
    """None: in the file of tls_cert."""
    tls_ca: Annotated[str | None, Unset("none")] = None
    """Clients must have a certificate that one of these signed."""
    api_key: Annotated[str | tuple[str, ...] | None, Unset("SPECSERVE_API_KEY, else none")] = None
    """Each of them is accepted."""
    api_key_file: Annotated[str | None, Unset("none")] = None
    """More keys, one per line; read again at SIGHUP."""
    served_model_name: Annotated[str | tuple[str, ...] | None, Unset("as MODEL")] = None
    """Names of the model in the API; the first is that of the metrics. None: the model's own."""
    chat_template: Annotated[str | None, Unset("the tokenizer's")] = None
    """A file; None: the template of the tokenizer's directory."""
    tool_form: Annotated[str | None, OneOf(TOOL_FORMS), Unset("the template's own")] = None
    """The form of tool calls that a model borrows whose chat template has none."""
    max_body_bytes: Annotated[int, AtLeast(1)] = 16 * 2**20
    page: bool = True
    """Serve the page at /, where a distribution brings one."""
    sse_keep_alive: Annotated[float | None, Seconds(), Unset("never")] = None
    """Seconds without an event after which a stream sends a comment; None: never."""
    request_timeout: Annotated[float | None, Seconds(), Unset("never")] = None
    """Seconds after which a request that still runs is aborted with an error."""
    max_requests_per_minute: Annotated[int | None, AtLeast(1), Unset("no limit")] = None
    """Of one API key, or without keys of one client address."""
    max_concurrent_requests_per_key: Annotated[int | None, AtLeast(1), Unset("no limit")] = None
    """Without keys: of one client address."""
    engine_process: Annotated[bool | None, Unset("where there are more than two cores")] = None
    """Run the engine in a process of its own."""
    http_processes: Annotated[int, Between(1, MAX_HTTP_PROCESSES)] = 1
    """How many processes read requests and write answers. Two or more have the engine in a process of its own."""
    drain_seconds: Annotated[float, AtLeast(0)] = 30.0
    strict_fields: bool = False
    """Refuse fields of requests that nobody defines."""
    drain_wait: Annotated[float, AtLeast(0)] = 0.0
    """Seconds before that, in which /health is 503 and requests are still served."""
    otlp_traces_endpoint: Annotated[
        str | None, Form("an http or https URL"), Unset("OTEL_EXPORTER_OTLP_ENDPOINT, else no traces")
    ] = None
    """The collector that gets OpenTelemetry traces; None: what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
    OTEL_EXPORTER_OTLP_ENDPOINT says."""
    access_log: Annotated[str, OneOf(ACCESS_LOGS)] = "none"
    """The form of a line for each request on standard error."""
    log_level: Annotated[str, OneOf(LOG_LEVELS)] = "warning"
    log_format: Annotated[str, OneOf(LOG_FORMATS)] = "text"
    """json: of the access log, too."""

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if self.uds == "":
            raise ConfigError("uds must be the path of a socket. Leave it out to listen on host and port.")
        if not re.fullmatch("[0-7]{3}", self.uds_mode):
            raise ConfigError(f"uds_mode must be three octal digits, such as 660; got {self.uds_mode!r}.")
        if self.root_path and not ROOT_PATH.fullmatch(self.root_path):
            raise ConfigError(
                f"root_path must begin with a slash and end without one, such as /llm; got {self.root_path!r}."
            )
        for origin in self.cors_origins:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors_origin must be * or a scheme, a host and perhaps a port, such as https://chat.example; "
                    f"got {origin!r}."
                )
        endpoint = self.otlp_traces_endpoint
        if endpoint is not None and not ENDPOINT.fullmatch(endpoint):
            raise ConfigError(
                f"otlp_traces_endpoint must be a URL that begins with http:// or https://, such as "
                f"http://localhost:4318/v1/traces; got {endpoint!r}. gRPC is not served."
            )
        names = self.served_model_names
        if self.served_model_name == () or any(name != (name.strip() or None) for name in names):
            raise ConfigError("served_model_name must not be empty or have blanks around it.")
        self.check_tls()
        self.check_http_processes()
        if self.api_key == () or any(key != (key.strip() or None) for key in self.api_keys):
            raise ConfigError(
                "api_key must not be empty or have blanks around it. To serve everybody, leave out the flag, the key "
                "in the file and SPECSERVE_API_KEY."
            )

    def check_tls(self) -> None:
        if self.tls_cert is None and (self.tls_key is not None or self.tls_ca is not None):
            raise ConfigError("tls_key and tls_ca need tls_cert, the server's own certificate.")
        if self.tls_cert is not None and self.uds is not None:
            raise ConfigError("tls_cert and uds exclude each other: a unix socket is served without TLS.")

    def check_http_processes(self) -> None:
        """What several processes cannot do."""
        if self.http_processes == 1:
            return
        if self.engine_process is False:
            raise ConfigError(
                "http_processes above 1 share one engine, which needs a process of its own. Leave out "
                "--no-engine-process, or leave http_processes at 1."
            )
        if self.uds is not None:
            raise ConfigError(
                "http_processes above 1 and uds exclude each other: only a TCP port can be shared by processes. Listen "
                "on host and port, or leave http_processes at 1."
            )
        for name in ("max_requests_per_minute", "max_concurrent_requests_per_key"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"http_processes above 1 and {name} exclude each other: each process would count for itself. Limit "
                    "clients in a proxy, or leave http_processes at 1."
                )

    @property
    def cors_origins(self) -> tuple[str, ...]:
        return as_tuple(self.cors_origin)

    @property
    def served_model_names(self) -> tuple[str, ...]:
        """Each once. Empty where the model's own name is used."""
        return tuple(dict.fromkeys(as_tuple(self.served_model_name)))

    @property
    def socket_mode(self) -> int:
        """Permissions of the unix socket."""
        return int(self.uds_mode, 8)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Without those of the file."""
        return as_tuple(self.api_key)


def as_tuple(values: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """One value may be written without a list."""
    return (values,) if isinstance(values, str) else values or ()
