"""What the server and the engine's process send each other. Both are of one version: nothing here is a format for
others.

A `stream` numbers a request that generates, a `call` one that has one answer; the server counts both.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from specserve.config import EngineConfig
from specserve.engine.admission import EngineLimits
from specserve.types import GenerateRequest, RequestOutput
from specserve_server.config import ServerConfig
from specserve_server.engine_process.sent_errors import SentError


class Frame(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Of either side."""


# --- from the server ----------------------------------------------------------------------------------


class Start(Frame, frozen=True, tag=True, array_like=True):
    """The first frame. `search_path`: where modules are looked for; `trace_topics`, `trace_form`: of --trace."""

    engine: EngineConfig
    server: ServerConfig
    search_path: tuple[str, ...]
    trace_topics: tuple[str, ...]
    trace_form: str


class Submit(Frame, frozen=True, tag=True, array_like=True):
    stream: int
    request: GenerateRequest


class Abort(Frame, frozen=True, tag=True, array_like=True):
    """Sent unless the stream has ended."""

    stream: int


class Release(Frame, frozen=True, tag=True, array_like=True):
    """Unpins a model, behind the aborts that were sent before."""

    pin: int


class Call(Frame, frozen=True, tag=True, array_like=True):
    """What has one answer: `Answered` or `Raised`."""

    call: int


class Check(Call, frozen=True, tag=True, array_like=True):
    request: GenerateRequest


class ResolveModel(Call, frozen=True, tag=True, array_like=True):
    name: str


class ListModels(Call, frozen=True, tag=True, array_like=True):
    pass


class CheckAnswer(Call, frozen=True, tag=True, array_like=True):
    request: GenerateRequest
    text: str
    finish_reason: str


class ReadState(Call, frozen=True, tag=True, array_like=True):
    pass


class Document(Call, frozen=True, tag=True, array_like=True):
    root_path: str
    needs_key: bool


class ResetPrefixCache(Call, frozen=True, tag=True, array_like=True):
    pass


class Sync(Call, frozen=True, tag=True, array_like=True):
    """Answered when what was sent before is done, or waits for the engine's next step."""


class Stop(Frame, frozen=True, tag=True, array_like=True):
    """End the requests that still run: for the server that started the process, those of all, and then the process."""


FromServer: TypeAlias = (
    Start
    | Submit
    | Abort
    | Release
    | Check
    | ResolveModel
    | ListModels
    | CheckAnswer
    | ReadState
    | Document
    | ResetPrefixCache
    | Sync
    | Stop
)


# --- from the engine ----------------------------------------------------------------------------------


class Progress(Frame, frozen=True, tag=True, array_like=True):
    """Of loading, as a `ProgressCallback` gets it."""

    stage: str
    done: int
    total: int


class SentTokenizer(msgspec.Struct, frozen=True):
    """What the server makes the same tokenizer of. `path`: the directory of its tokenizer.json."""

    path: str
    eos_token_ids: tuple[int, ...]
    sampling_defaults: dict[str, float]
    tokenizer_class: str | None


class Loaded(Frame, frozen=True, tag=True, array_like=True):
    """The engine is ready. `created`: when, in seconds since the epoch. `announcements`: lines for standard error.
    `directory`: where its sockets are, see `private_directory`; `route_patterns`: the paths of plugins' routes."""

    model_name: str
    created: int
    limits: EngineLimits
    tokenizer: SentTokenizer
    announcements: tuple[str, ...]
    directory: str
    route_patterns: tuple[str, ...]


class LoadFailed(Frame, frozen=True, tag=True, array_like=True):
    error: SentError


class Outputs(Frame, frozen=True, tag=True, array_like=True):
    """Of one step or more."""

    outputs: list[tuple[int, RequestOutput]]


class Refused(Frame, frozen=True, tag=True, array_like=True):
    """Ends a stream."""

    stream: int
    error: SentError


class Answered(Frame, frozen=True, tag=True, array_like=True):
    """`value`: msgpack of what the call is annotated with in `specserve_server.engine_process.client`."""

    call: int
    value: msgspec.Raw


class Raised(Frame, frozen=True, tag=True, array_like=True):
    call: int
    error: SentError


class Died(Frame, frozen=True, tag=True, array_like=True):
    """The step loop has failed."""

    error: str


FromEngine: TypeAlias = Progress | Loaded | LoadFailed | Outputs | Refused | Answered | Raised | Died


class FoundModel(msgspec.Struct, frozen=True):
    """A `ModelLookup`, with the number of its pin in place of what releases it."""

    name: str
    parent: str | None
    adapter: str
    pin: int | None


class SentLookup(msgspec.Struct, frozen=True):
    model: FoundModel | None
    failed: tuple[str, ...]
