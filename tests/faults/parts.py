"""Every part that a plugin can bring and the step calls, each made to misbehave in one of its methods.

A part either concerns everybody, and is then left out, or decides about the request it is called for: then it
misbehaves for the requests whose id begins with `culprit`, and those may end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faulty import Misbehaving, in_process

from specserve.attention.sdpa import SdpaAttention, SdpaFactory
from specserve.engine.verifier import DrafterInvariantVerifier
from specserve.kernels.torch_kernels import TorchKernels
from specserve.protocols import CacheObserver, LogitsProcessor, LoraPlanner, ProcessorState
from specserve.sampling.sampler import TorchSampler
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.drafters import OracleDrafter

if TYPE_CHECKING:
    from collections.abc import Callable

CULPRIT = "culprit"


def is_culprit(request, *_: Any) -> bool:
    return request.id.startswith(CULPRIT)


def has_culprit(batch, *_: Any) -> bool:
    return any(span.request.id.startswith(CULPRIT) for span in batch.spans)


def has_marked_rows(*arguments: Any) -> bool:
    """Rows of a culprit are NaN, see `exploding`."""
    return any(bool(a.isnan().any()) for a in arguments if hasattr(a, "isnan"))


def has_marked_samples(logits, rows=None, *_: Any) -> bool:
    picked = logits if not rows or not hasattr(rows[0], "row") else logits[[row.row for row in rows]]
    return has_marked_rows(picked)


@dataclass
class Part:
    """`make(behaviour, outputs)`: the plugins, by name, with the misbehaving one called `faulty`."""

    make: Callable[..., dict]
    ends_culprits: bool
    answers: bool = True
    """Is what the method returns looked at?"""
    native: bool = False
    """Runs with the native kernels."""


def of_drafter(method):
    def make(behaviour, outputs):
        drafter = Misbehaving(OracleDrafter(outputs, 4), method, behaviour)
        return in_process("faulty", make_drafter=lambda: drafter, make_draft_planner=lambda: FixedWidthPlanner(8))

    return Part(make, False, answers=method == "propose")


def of_planner(method):
    def make(behaviour, outputs):
        planner = Misbehaving(FixedWidthPlanner(8), method, behaviour)
        drafter = in_process("drafts", make_drafter=lambda: OracleDrafter(outputs, 4))
        return in_process("faulty", make_draft_planner=lambda: planner) | drafter

    return Part(make, False, answers=method != "learn")


class Quiet:
    """An observer."""

    def observe(self, batch, verdict):
        pass

    def metrics(self):
        return ()


def of_observer(method):
    def make(behaviour, outputs):
        asked = iter((False,))  # start-up asks for the metrics once
        observer = Misbehaving(Quiet(), method, behaviour, lambda *_: method == "observe" or next(asked, True))
        return in_process("faulty", make_observer=lambda: observer)

    return Part(make, False, answers=method == "metrics")


class Looks(CacheObserver):
    """A cache observer."""

    def changed(self, changes):
        pass


def of_cache_observer():
    def make(behaviour, outputs):
        observer = Misbehaving(Looks(), "changed", behaviour)
        return in_process("faulty", make_cache_observer=lambda: observer)

    return Part(make, False, answers=False)


class State(ProcessorState):
    """Of a logits processor that changes nothing."""

    def apply(self, logits, path):
        return logits


class EditingState(State):
    has_edits = True

    def edit(self, edits, path):
        pass


class Processor(LogitsProcessor):
    """Every request has a state; those of culprits misbehave."""

    def __init__(self, kind, method, behaviour):
        self.kind, self.method, self.behaviour = kind, method, behaviour

    def start(self, request, vocab_size):
        state = self.kind()
        return Misbehaving(state, self.method, self.behaviour) if is_culprit(request) else state


def of_state(method, kind=State, native=False):
    def make(behaviour, outputs):
        processor = Processor(kind, method, behaviour)
        return in_process("faulty", logits_processors=lambda: [processor])

    return Part(make, True, answers=method == "apply", native=native)


def of_processor(method):
    def make(behaviour, outputs):
        processor = Misbehaving(Processor(State, "none", None), method, behaviour, is_culprit)
        return in_process("faulty", logits_processors=lambda: [processor])

    return Part(make, True)


def of_kernels(method):
    def make(behaviour, outputs):
        class Kernels(TorchKernels):
            name = "faulty's"

            def prepare_linear(self, weight, bias):
                return None

        good = getattr(TorchKernels, method)

        def misbehave(self, *arguments):
            if not has_marked_rows(*arguments):
                return good(self, *arguments)
            Kernels.calls = getattr(Kernels, "calls", 0) + 1
            return behaviour(Kernels.calls, lambda *a: good(self, *a), arguments)

        setattr(Kernels, method, misbehave)
        return in_process("faulty", make_kernels=lambda: Kernels())

    return Part(make, True)


def of_sampler(method):
    def make(behaviour, outputs):
        class Kernels(TorchKernels):
            name = "faulty's"
            sampler = Misbehaving(TorchSampler(), method, behaviour, has_marked_samples)

        return in_process("faulty", make_kernels=lambda: Kernels())

    return Part(make, True)


def of_attention(method):
    when = has_marked_rows if method == "forward" else has_culprit

    def make(behaviour, outputs):
        class Attention(SdpaAttention):
            name = "faulty's"

        class Factory(SdpaFactory):
            name = "faulty's"

            def build(self, *arguments):
                backend = Attention(*arguments)
                good = getattr(backend, method)
                wrapped = Misbehaving(
                    backend, method, behaviour, lambda *a: when(*(a[1:] if method == "forward" else a))
                )
                setattr(backend, method, lambda *a: wrapped.behave(good, a))
                return backend

        return in_process(
            "faulty", attention_backends=lambda: [Factory()], select_attention=lambda available: available["faulty's"]
        )

    return Part(make, True)


class Decides(DrafterInvariantVerifier):
    """The built-in verifier, as a faulty's."""

    def __init__(self):
        super().__init__((317,), TorchSampler())


def of_verifier():
    def make(behaviour, outputs):
        verifier = Misbehaving(Decides(), "verify", behaviour, has_culprit)
        return in_process("faulty", make_verifier=lambda: verifier)

    return Part(make, True)


def of_request_check():
    def make(behaviour, outputs):
        class Check:
            def call(self, request):
                return None

        wrapped = Misbehaving(Check(), "call", behaviour)
        return in_process("faulty", check_request=lambda request: wrapped.call(request))

    return Part(make, False, answers=False)


class NoAdapters(LoraPlanner):
    """A LoRA planner."""

    def plan(self, batch):
        return None


def of_lora_planner():
    def make(behaviour, outputs):
        planner = Misbehaving(NoAdapters(), "plan", behaviour, has_culprit)
        return in_process("faulty", make_lora_planner=lambda: planner)

    return Part(make, True)


PARTS = {
    **{f"drafter.{m}": of_drafter(m) for m in ("start", "propose", "stop")},
    **{f"planner.{m}": of_planner(m) for m in ("limits", "choose", "learn")},
    **{f"observer.{m}": of_observer(m) for m in ("observe", "metrics")},
    "cache_observer.changed": of_cache_observer(),
    "processor.start": of_processor("start"),
    **{f"state.{m}": of_state(m) for m in ("apply", "commit")},
    "state.edit": of_state("edit", EditingState, native=True),
    "state.apply, native": of_state("apply", State, native=True),
    **{f"kernels.{m}": of_kernels(m) for m in ("linear", "rms_norm", "rotary", "silu_and_multiply")},
    **{f"sampler.{m}": of_sampler(m) for m in ("argmax_tokens", "target_tokens", "token_logprobs")},
    **{f"attention.{m}": of_attention(m) for m in ("backend_for", "plan", "forward")},
    "verifier.verify": of_verifier(),
    "check_request": of_request_check(),
    "lora_planner.plan": of_lora_planner(),
}
