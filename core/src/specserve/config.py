"""Frozen configuration of the engine and the server.

Owns names, defaults, bounds and their errors; imports no torch. A plugin's own options are its own Struct,
filled from `plugin_options[NAME]`; the core knows none of them.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda")
GRAPHS = ("auto", "none", "piecewise", "full")
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
MAX_THREADS = 1024
"""Torch crashes where the system cannot give it the threads."""
DEMO_MODEL = "demo"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that shapes an engine. Sizes are in tokens unless the name says otherwise."""

    model: str = DEMO_MODEL
    """A directory in Hugging Face format, a name from the entry-point group `specserve.models`, or a hub id."""
    dtype: str = "auto"
    device: str = "cpu"
    threads: int | None = None
    """CPU threads; None: the number of cores this process may use."""
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    """The budget of one step: decode and prefill rows and draft tokens together."""
    max_model_len: int | None = None
    """Context length; None: the model's own, at most 32768."""
    max_waiting: int = 1024
    block_size: int = 16
    kv_memory: str | None = None
    """Bytes for the KV cache, with K, M or G; None: what max_num_seqs full contexts need, at most a quarter of
    free memory."""
    prefix_cache: bool = True
    chunked_prefill: bool = True
    max_draft_tokens: int = 32
    """The widest draft of one request."""
    attention: str = "auto"
    graphs: str = "auto"
    """What is recorded and replayed: full graphs of decode and verify steps and piecewise ones of the others,
    piecewise ones of all steps, or none. auto: full on CUDA, none on CPUs, where they gain nothing."""
    graph_buckets: tuple[int, ...] | None = None
    """The numbers of rows that steps are padded to; None: four per doubling, up to max_num_batched_tokens."""
    graph_memory: str | None = None
    """Bytes for graphs and their buffers, with K, M or G; None: at most a tenth of free memory."""
    graph_warm_up: bool = False
    """Record graphs at start-up instead of when a step first needs them."""
    draft_fault_limit: int = 5
    """Faulty steps in a row after which a drafter is switched off."""
    fault_limit: int = 5
    """Faulty calls in a row after which any other part of a plugin is switched off: observer, planner, processor."""
    plugins: tuple[str, ...] = ()
    no_plugins: tuple[str, ...] = ()
    default_plugins: bool = True
    allow_undeclared: bool = False
    plugin_options: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        choose("dtype", self.dtype, DTYPES)
        choose("device", self.device, DEVICES)
        choose("graphs", self.graphs, GRAPHS)
        if self.graph_buckets is not None:
            check_buckets(self.graph_buckets, self.max_num_batched_tokens)
        if self.block_size not in BLOCK_SIZES:
            raise ConfigError(f"block_size must be one of {', '.join(map(str, BLOCK_SIZES))}; got {self.block_size}.")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_waiting", "draft_fault_limit", "fault_limit"):
            at_least(name, getattr(self, name), 1)
        at_least("max_draft_tokens", self.max_draft_tokens, 0)
        for name in ("threads", "max_model_len"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        if self.threads is not None and self.threads > MAX_THREADS:
            raise ConfigError(f"threads must be at most {MAX_THREADS}; got {self.threads}.")
        for size in (self.kv_memory, self.graph_memory):
            if size is not None:
                parse_bytes(size)

    @property
    def graph_mode(self) -> str:
        """`graphs`, with auto resolved: none, piecewise or full."""
        if self.graphs != "auto":
            return self.graphs
        return "full" if self.device == "cuda" else "none"


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP side."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    served_model_name: str | None = None
    max_body_bytes: int = 16 * 2**20
    drain_seconds: float = 30.0
    strict_fields: bool = False
    """Refuse fields of requests that nobody defines."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535 (0 picks a free one); got {self.port}.")
        at_least("max_body_bytes", self.max_body_bytes, 1)
        if not self.drain_seconds >= 0:  # also false for NaN
            raise ConfigError(f"drain_seconds must be at least 0; got {self.drain_seconds:g}.")
        if self.api_key is not None and self.api_key != (self.api_key.strip() or None):
            raise ConfigError("api_key must not be empty or have blanks around it. Leave it out to serve everybody.")


def choose(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {got!r}.")


def at_least(name: str, got: int, least: int) -> None:
    if got < least:
        raise ConfigError(f"{name} must be at least {least}; got {got}.")


def check_buckets(buckets: tuple[int, ...], most_rows: int) -> None:
    what = "graph_buckets are ascending numbers of rows, such as 1,2,4,8"
    if not buckets or buckets[0] < 1 or any(one >= other for one, other in pairwise(buckets)):
        raise ConfigError(f"{what}; got {','.join(map(str, buckets)) or 'none'}.")
    if buckets[-1] > most_rows:
        raise ConfigError(
            f"graph_buckets end at {buckets[-1]} rows, and no step has more than {most_rows}, max_num_batched_tokens. "
            f"Leave out what is above {most_rows}, or raise max_num_batched_tokens."
        )


def parse_bytes(text: str) -> int:
    """`"512M"` -> 536870912. Suffixes K, M, G are powers of 1024; no suffix is bytes."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    digits = text[:-1] if scale > 1 else text
    try:
        size = int(float(digits) * scale)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ConfigError(f"a memory size is a positive number with K, M or G, such as 512M or 2G; got {text!r}.")
    return size


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file; its errors name the file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"--config: no file at {path}.") from None
    except OSError as error:
        raise ConfigError(f"--config: {path} is not readable: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not valid TOML: {error}.") from None
