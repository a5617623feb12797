"""What one request gave, output by output, and the comparison with what it gives alone: bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.failures import Failure
from specserve.text.detokenizer import IncrementalDetokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.plans import RequestPlan
    from specserve.protocols import Tokenizer
    from specserve.types import RequestOutput, TokenLogprobs

SHORT = 300
"""Characters of a value in a message."""


class Result:
    def __init__(self, request: RequestPlan, tokenizer: Tokenizer) -> None:
        params = request.params
        stream = tokenizer.stream(request.prompt, skip_special_tokens=params.skip_special_tokens)
        self.detokenizer = IncrementalDetokenizer(stream, params.stop, include=params.include_stop_str_in_output)
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs] = []
        self.offsets: list[int] = []
        self.accepted: list[bool] = []
        """Of each token: was it a guess?"""
        self.drafted_by: list[str] = []
        self.text = ""
        self.finish_reason: str | None = None
        self.stop_string: str | None = None
        self.error: str | None = None
        self.num_outputs = 0
        self.aborted = False

    def take(self, output: RequestOutput) -> None:
        if self.finish_reason is not None:
            raise Failure("output after the end", f"{output}")
        if output.tokens or output.finish_reason:
            text, offsets = self.detokenizer.push(
                output.tokens, finish_reason=output.finish_reason, stop_string=output.stop_string
            )
            self.text += text
            self.offsets += offsets
        self.num_outputs += 1
        self.tokens += output.tokens
        self.logprobs += output.logprobs or ()
        self.prompt_logprobs += output.prompt_logprobs or ()
        self.accepted += output.accepted
        self.drafted_by += output.drafted_by
        self.error = output.error or self.error
        self.finish_reason, self.stop_string = output.finish_reason, output.stop_string

    def decided(self) -> dict[str, Any]:
        """What must not depend on anything but the request, the weights and the arithmetic."""
        return {
            "tokens": self.tokens,
            "finish reason": self.finish_reason,
            "stop string": self.stop_string,
            "text": self.text,
            "offsets": self.offsets,
            "logprobs": [exact(entry) for entry in self.logprobs],
            "prompt logprobs": [exact(entry) for entry in self.prompt_logprobs],
        }


def exact(entry: TokenLogprobs) -> str:
    """NaN equals NaN, and -0.0 is not 0.0."""
    return repr(tuple(entry))


def compare(request: RequestPlan, alone: Result, got: Result, *, may_fail: bool = False) -> None:
    """Raise a Failure unless `got` is what the request gives alone, or the beginning of it where it was aborted.

    `may_fail`: the request's own processor raised; then it may have ended in an error. One whose limits leave no token
    to choose from does so alone, too.
    """
    where = f"request {request.id} (prompt of {len(request.prompt)}, answer of {len(alone.tokens)})"
    failed = got.finish_reason == "error"
    if failed and not may_fail and got.error != alone.error:
        raise Failure("request ended in an error", f"{where}: {got.error}")
    if got.finish_reason is None and not got.aborted:
        raise Failure("request never ended", where)
    if len(got.accepted) != len(got.tokens):
        raise Failure("flags and tokens differ in number", f"{where}: {len(got.accepted)}, {len(got.tokens)} tokens")
    cut_off = failed or got.finish_reason is None
    if list(map(bool, got.drafted_by)) != got.accepted:
        raise Failure("an accepted token has no drafter, or another one has", f"{where}: {got.drafted_by!s:.{SHORT}}")
    found, skipped = got.decided(), ("finish reason", "stop string") if cut_off else ()
    if failed:  # an end lets out text that was held back as the beginning of a stop string
        skipped += ("text",)
    for what, right in alone.decided().items():
        if what in skipped:
            continue
        value = found[what]
        right = right[: len(value)] if cut_off else right
        if cut_off and alone.error and what == "prompt logprobs":  # of the step that failed there are none
            value = value[: len(right)]
        if value != right:
            raise Failure("an answer differs", f"{where}: its {what}, {difference(value, right)}")


def difference(got: Any, alone: Any) -> str:
    if not isinstance(got, list):
        return f"got {got!r:.{SHORT}}, alone {alone!r:.{SHORT}}"
    at = first_difference(got, alone)
    return f"at {at} got {got[at : at + 2]!s:.{SHORT}}, alone {alone[at : at + 2]!s:.{SHORT}}"


def first_difference(a: Sequence[Any], b: Sequence[Any]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
