"""The choices of one client request: their tokens from the engine, their text, and the sums over all of them.

Owns the merging of several engine streams into one and that closing it aborts them all. Knows neither
completions nor chat.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.errors import EngineDeadError
from specserve.server.errors import GenerationError
from specserve.text.detokenizer import IncrementalDetokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from specserve.protocols import TextStream
    from specserve.server.engine_client import EngineClient
    from specserve.types import GenerateRequest, RequestOutput, SpeculationFigures, TokenLogprobs


class Piece(NamedTuple):
    """What one output adds to a choice; offsets are characters of the generated text."""

    text: str
    tokens: tuple[int, ...]
    accepted: tuple[bool, ...]
    offsets: list[int]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: str | None


@dataclass(slots=True)
class Choice:
    """One engine request and what came of it so far."""

    index: int
    request: GenerateRequest
    detokenizer: IncrementalDetokenizer
    prompt_text: str = ""
    """Shown before the generated text: the prompt, where echo is asked."""
    discard_output: bool = False
    """max_tokens 0: the prompt alone was asked for, though the engine generates a token."""
    pieces: list[Piece] = field(default_factory=list)
    num_tokens: int = 0
    cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    figures: SpeculationFigures | None = None
    finish_reason: str | None = None

    def take(self, output: RequestOutput) -> Piece | None:
        """Book a output; None while it shows nothing (the prompt is being computed)."""
        if output.finish_reason == "error":
            raise GenerationError(output.error or "the engine could not finish this request.")
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        self.prompt_logprobs += output.prompt_logprobs or ()
        self.figures = output.figures or self.figures
        self.finish_reason = output.finish_reason
        if not output.tokens and output.finish_reason is None:
            return None
        text, offsets = self.detokenizer.push(
            output.tokens, finish_reason=output.finish_reason, stop_string=output.stop_string
        )
        if self.discard_output:
            return Piece("", (), (), [], (), output.finish_reason)
        self.num_tokens += len(output.tokens)
        return Piece(text, output.tokens, output.accepted, offsets, output.logprobs or (), output.finish_reason)

    def whole(self) -> Piece:
        """All pieces as one."""
        return Piece(
            "".join(piece.text for piece in self.pieces),
            tuple(token for piece in self.pieces for token in piece.tokens),
            tuple(flag for piece in self.pieces for flag in piece.accepted),
            [offset for piece in self.pieces for offset in piece.offsets],
            tuple(entry for piece in self.pieces for entry in piece.logprobs),
            self.finish_reason,
        )


def make_choice(index: int, request: GenerateRequest, stream: TextStream, **extras: Any) -> Choice:
    params = request.params
    detokenizer = IncrementalDetokenizer(stream, params.stop, include=params.include_stop_str_in_output)
    return Choice(index, request, detokenizer, **extras)


async def run_choices(engine: EngineClient, choices: Sequence[Choice]) -> AsyncGenerator[tuple[Choice, Piece], None]:
    """Pieces as they come. Close it (`aclosing`) to abort what still runs."""
    async with aclosing(merge(engine, choices)) as outputs:
        async for choice, output in outputs:
            piece = choice.take(output)
            if piece is not None:
                yield choice, piece
    if any(choice.finish_reason is None for choice in choices):
        raise EngineDeadError("the engine ended before the request did.")


async def merge(engine: EngineClient, choices: Sequence[Choice]) -> AsyncGenerator[tuple[Choice, RequestOutput], None]:
    if len(choices) == 1:
        async with aclosing(engine.submit(choices[0].request)) as stream:
            async for output in stream:
                yield choices[0], output
        return
    # A slow reader fills the queue; the engine then merges what waits, per request.
    queue: asyncio.Queue[tuple[Choice, RequestOutput] | BaseException | None] = asyncio.Queue(maxsize=len(choices))

    async def pump(choice: Choice) -> None:
        try:
            async with aclosing(engine.submit(choice.request)) as stream:
                async for output in stream:
                    await queue.put((choice, output))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(pump(choice)) for choice in choices]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def usage(choices: Sequence[Choice], n: int) -> dict[str, Any]:
    """OpenAI's usage; a prompt counts once, however many choices it has."""
    firsts = choices[::n]
    prompt_tokens = sum(len(choice.request.prompt_token_ids) for choice in firsts)
    completion_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.cached_tokens for choice in firsts)},
    }


def speculation_metrics(choices: Sequence[Choice]) -> dict[str, Any]:
    """`{"metrics": {"speculative_decoding": ...}}` over all choices, or nothing when no step speculated."""
    figures = [choice.figures for choice in choices if choice.figures is not None]
    num_steps = sum(figure.num_spec_steps for figure in figures)
    if num_steps == 0:
        return {}
    drafted = sum(figure.num_draft_tokens for figure in figures)
    accepted = sum(figure.num_accepted_draft_tokens for figure in figures)
    histograms = zip_longest(*(figure.acceptance_histogram for figure in figures), fillvalue=0)
    summary = {
        "mean_acceptance_length": 1 + accepted / num_steps,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [sum(counts) for counts in histograms],
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
    }
    return {"metrics": {"speculative_decoding": summary}}
