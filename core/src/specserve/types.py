"""The shared types: requests and their parameters, drafts, and the results of a step.

Everything here is frozen and complete when it is made. No torch at run time: `specserve --help` and the
compatibility commands read this module too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.faults import RequestFault

FinishReason = Literal["stop", "length", "abort", "error"]
DraftStop = Literal["rejected", "draft_ended", "no_draft", "finished"]
"""Why no more of a draft was accepted: the target chose a token that none of the next nodes has; there were no next
nodes; nothing was verified; or the request ended with an accepted token."""


class SpeculationParams(msgspec.Struct, frozen=True, kw_only=True):
    """Per-request control of speculation. It changes speed, never tokens."""

    enabled: bool = True
    max_draft_tokens: int | None = None
    """At most this many draft tokens per verify step; None leaves it to the planner."""
    drafters: tuple[str, ...] | None = None
    """Only the drafters of these names propose; None: all. With none of them, speculation is not enabled."""
    return_steps: bool = False
    """Whether outputs have `steps`."""

    def allows(self, drafter: str) -> bool:
        return self.drafters is None or drafter in self.drafters


class Reasoning(msgspec.Struct, frozen=True):
    """Free text that comes before the text with a form, between these marks. `begin`: "" where the prompt has it."""

    begin: str
    end: str
    others: tuple[str, ...] = ()
    """That begin free text, too; with any, there may be several such texts."""
    answer: str = ""
    """May stand in front of the text with a form."""


class StructuredOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The form that the text of a request must have. A plugin's logits processor enforces it."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"]
    text: str = ""
    """A JSON schema, a regular expression, a JSON list of texts, a grammar, or a structural tag in JSON; "" for
    json_object."""
    whitespace: Literal["", "fixed", "flexible"] = ""
    """Between the parts of JSON; "": as the plugin is set."""
    closed_objects: bool | None = None
    """Whether objects whose schema names properties have no others; None: as the plugin is set."""
    reasoning: Reasoning | None = None
    """What may come before."""
    param: str = "structured_outputs"
    """The client's name for it, in messages."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of one request are chosen. `specserve.engine.admission` checks the ranges.

    Temperature 0 (in fact anything below 1e-5) is greedy. `seed` None draws one at admission. `logprobs` k asks
    for the chosen token's log-probability and the k most likely ones, raw (before every processor);
    `prompt_logprobs` the same for the prompt. `bad_words` are token sequences that must not be completed.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    """Whether stop strings are looked for in text without special tokens."""
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_output: StructuredOutput | None = None


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate: what crosses the border into the engine."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = SamplingParams()
    speculation: SpeculationParams = SpeculationParams()
    adapter: str = ""
    """The version of an adapter, or what a plugin resolved a model's name to; empty for the base model."""
    cache_salt: str | None = None
    """Requests share cached prefixes, and whatever drafters share, with those of the same adapter and salt only."""
    priority: int = 0
    """Lower runs first; equal priorities run in order of arrival."""
    trace_headers: dict[str, str] = {}
    """W3C Trace Context of whoever traces the request: `traceparent`, and perhaps `tracestate`. Empty: nobody does."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of draft tokens after the last committed token.

    `parents[i]` is the node before node i, -1 for the root; a parent precedes its children; None is a
    chain. `survival[i]` estimates P(node i and its ancestors are all accepted), in [0, 1]; None: unknown.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...] | None = None
    survival: tuple[float, ...] | None = None
    source: str = ""
    """Name of the drafter. Its guard sets it, whatever the drafter says."""
    sources: tuple[str, ...] | None = None
    """The source of each node, if the drafts of several drafters were merged; None: `source` for all. Drafters leave it
    out."""


class TokenLogprobs(NamedTuple):
    """Raw log-probabilities at one position: the token's own, and the k best as (ids, values)."""

    token_id: int
    logprob: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class GraphUse(NamedTuple):
    """How a pass ran: replayed from a `full` or `piecewise` graph, or eagerly (`none`). `reason`: why not from a better
    one."""

    mode: Literal["full", "piecewise", "none"]
    reason: str


class ForwardOutput(NamedTuple):
    """What the runner computed: logits [scored rows, vocab], float32, and hidden states by layer [rows, hidden]. Logits
    are valid until the next pass, which may overwrite them; hidden states stay."""

    logits: Tensor
    hidden: Mapping[int, Tensor]
    graph: GraphUse = GraphUse("none", "graphs are off")
    greedy: Tensor | None = None
    """[scored rows] int64: the tokens of the largest logits, where they are computed already. Valid as logits are."""


class SpanVerdict(NamedTuple):
    """What one span decided. Spans that end inside the prompt decide nothing: empty `tokens`."""

    path: tuple[int, ...]
    """Accepted draft nodes from the root on."""
    tokens: tuple[int, ...]
    """The new tokens: those of `path`, then one target token more, unless a stop cut them."""
    finish_reason: FinishReason | None
    logprobs: tuple[TokenLogprobs, ...] | None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None
    fault: RequestFault | None = None
    """What ended the request with finish_reason "error"; `tokens` is empty then."""


class Verdict(msgspec.Struct, frozen=True):
    """One `SpanVerdict` per span of the batch, in its order; on the host: this is the step's one copy."""

    spans: list[SpanVerdict]


class PlannerStats(msgspec.Struct, frozen=True):
    """What a planner decided for one request, until its last step."""

    steps: dict[str, int] = {}
    """Steps by what was decided, or why not: the planner's own words."""
    predicted_accepted_tokens: float = 0.0
    """Draft tokens that it expected to be accepted, of those that it had verified."""


class DrafterStats(NamedTuple):
    """Draft tokens of one drafter for one request."""

    num_draft_tokens: int = 0
    """Draft tokens that were verified."""
    num_accepted_draft_tokens: int = 0


class SpeculationStats(msgspec.Struct, frozen=True):
    """What speculation did for one request. Plain decoding has mean acceptance length 1."""

    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    acceptance_histogram: tuple[int, ...]
    """[a] counts the verify steps that accepted a draft tokens."""
    planner: PlannerStats | None = None
    """None if the planner states nothing."""
    by_drafter: dict[str, DrafterStats] = {}
    """By name. A draft token of several drafters counts for the one that was surest of it."""


class SpeculationStep(msgspec.Struct, frozen=True):
    """What was drafted for a request in one step that gave it tokens, and what became of it."""

    num_tokens: int
    """New tokens: the accepted ones, then one of the target alone, unless a stop cut it."""
    draft: Draft | None
    """What was verified; None: nothing."""
    path: tuple[int, ...]
    """Accepted draft nodes from the root on."""
    stopped: DraftStop
    reason: str | None
    """Why fewer draft tokens were verified than could have been; None: all that were proposed were."""
    seconds: float
    """What the engine's step took, with all its requests and the drafts for the next step."""


class RequestOutput(msgspec.Struct, frozen=True):
    """What one step gave one request. The last one of a request has a finish_reason and the stats.

    Consecutive outputs of a request may be merged: see `merge`.
    """

    request_id: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    accepted: tuple[bool, ...] = ()
    """Per token: whether it was an accepted draft token."""
    drafted_by: tuple[str, ...] = ()
    """Per token: the drafter whose accepted draft token it was; "" for a token of the target alone."""
    stop_string: str | None = None
    """The stop string that ended the request."""
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache served."""
    stats: SpeculationStats | None = None
    error: str | None = None
    steps: tuple[SpeculationStep, ...] = ()
    """The steps that gave `tokens`, with `SpeculationParams.return_steps`."""

    def merge(self, later: RequestOutput) -> RequestOutput:
        """This output followed by `later`, as one."""
        both = self.logprobs, later.logprobs
        prompt = self.prompt_logprobs, later.prompt_logprobs
        return RequestOutput(
            self.request_id,
            self.tokens + later.tokens,
            later.finish_reason,
            None if both == (None, None) else (both[0] or ()) + (both[1] or ()),
            None if prompt == (None, None) else (prompt[0] or ()) + (prompt[1] or ()),
            self.accepted + later.accepted,
            self.drafted_by + later.drafted_by,
            later.stop_string,
            max(self.cached_tokens, later.cached_tokens),
            later.stats,
            later.error,
            self.steps + later.steps,
        )
