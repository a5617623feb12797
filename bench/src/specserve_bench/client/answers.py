"""The events of a streamed answer, as servers of the OpenAI API send them. Unknown fields are left out."""

from __future__ import annotations

import msgspec

from specserve_bench.client.records import DraftCounts

Raw = msgspec.Raw
NOTHING = (b"", b"null", b'""', b"[]")


class Delta(msgspec.Struct, frozen=True):
    content: Raw = Raw()
    reasoning: Raw = Raw()
    reasoning_content: Raw = Raw()
    tool_calls: Raw = Raw()

    @property
    def has_tokens(self) -> bool:
        fields = (self.content, self.reasoning, self.reasoning_content, self.tool_calls)
        return any(bytes(field) not in NOTHING for field in fields)


class Choice(msgspec.Struct, frozen=True):
    delta: Delta | None = None
    """None in answers of /v1/completions."""
    finish_reason: str | None = None
    speculation: Raw = Raw()
    """What specserve tells of its steps, where it is asked."""


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(msgspec.Struct, frozen=True):
    choices: list[Choice] = []
    usage: Usage | None = None
    metrics: Raw = Raw()
    error: Raw = Raw()

    @property
    def has_tokens(self) -> bool:
        """A chat that only says whose turn it is has none. A token whose text is still incomplete counts."""
        return any(choice.delta is None or choice.finish_reason or choice.delta.has_tokens for choice in self.choices)

    @property
    def told_steps(self) -> list[Raw]:
        return [choice.speculation for choice in self.choices if bytes(choice.speculation) not in NOTHING]

    @property
    def is_error(self) -> bool:
        return bytes(self.error) not in NOTHING


class DrafterFigures(msgspec.Struct, frozen=True):
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0


class SpeculativeDecoding(msgspec.Struct, frozen=True):
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    drafters: dict[str, DrafterFigures] | None = None


class Metrics(msgspec.Struct, frozen=True):
    speculative_decoding: SpeculativeDecoding | None = None


event_decoder = msgspec.json.Decoder(Event)
metrics_decoder = msgspec.json.Decoder(Metrics)
ALL = "all"
"""In place of a drafter's name where the server does not tell them apart."""


def draft_counts(metrics: Raw) -> dict[str, DraftCounts] | None:
    """By drafter, of an event's `metrics`: none where nothing was drafted. None where it has no such figures, or others
    of that name."""
    try:
        figures = metrics_decoder.decode(metrics).speculative_decoding if bytes(metrics) not in NOTHING else None
    except msgspec.DecodeError:
        return None
    if figures is None:
        return None
    if figures.drafters is None:
        counts = DraftCounts(figures.num_draft_tokens, figures.num_accepted_draft_tokens)
        return {ALL: counts} if counts.drafted else {}
    return {
        name: DraftCounts(one.num_draft_tokens, one.num_accepted_draft_tokens) for name, one in figures.drafters.items()
    }
