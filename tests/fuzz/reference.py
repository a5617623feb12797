"""What a request gives alone: one at a time, without drafters, prefix cache or preemption, its prompt in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.building import build_reference
from fuzz.failures import Failure
from fuzz.parts.processing import Processor
from fuzz.results import Result
from fuzz.wire import as_request
from specserve.types import SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from fuzz.building import Built
    from fuzz.plans import Plan, RequestPlan

MOST_STEPS = 2000


def version_name(adapter: str, version: int) -> str:
    return f"{adapter}.{version}"


class Reference:
    """Answers of requests, each computed once. `adapters`: directories by name and version."""

    def __init__(
        self, plan: Plan, model: Path, adapters: Mapping[str, Path], attention: Mapping[str, Any], longest: int
    ) -> None:
        self.longest = longest
        """Tokens of a request on the engine under test, whose cache may be smaller."""
        self.processor = Processor(plan.engine.processor) if plan.engine.processor else None

        def made(adapters: Mapping[str, Path]) -> Built:
            return build_reference(plan.model, plan.engine, model, adapters, attention, self.processor)

        self.base, self.adapted = made({}), made(adapters) if adapters else None
        self.answers: dict[tuple[str, int, bool], Result] = {}

    def answer(self, request: RequestPlan, version: int = 0, *, processed: bool = True, anew: bool = False) -> Result:
        """Under this version of its adapter. `processed`: by the logits processor, where there is one. `anew`: the
        request is not what it was when it was asked last."""
        key = request.id, version, processed
        if anew or key not in self.answers:
            if self.processor is not None:
                self.processor.left_out = not processed
            self.answers[key] = self.serve(request, version)
        return self.answers[key]

    def serve(self, request: RequestPlan, version: int) -> Result:
        if request.adapter is None:
            return self.run(self.base, request, "")
        assert self.adapted is not None, f"{request.id} names {request.adapter}, and there are no adapters"
        pinned = self.adapted.host.single("resolve_model", name=version_name(request.adapter, version))
        assert pinned is not None
        try:
            return self.run(self.adapted, request, pinned[1].adapter)
        finally:
            pinned[1].release()

    def close(self) -> None:
        for built in filter(None, (self.base, self.adapted)):
            built.engine.runner.close()

    def run(self, built: Built, request: RequestPlan, adapter: str) -> Result:
        most = min(request.params.max_tokens, self.longest - len(request.prompt))
        wire = as_request(
            request, adapter, speculation=SpeculationParams(), priority=0, max_tokens=most, cache_salt=None
        )
        result, engine = Result(request, built.tokenizer), built.engine
        engine.add(wire)
        for _ in range(MOST_STEPS):
            for output in engine.step():
                result.take(output)
            if not engine.has_work:
                engine.check_integrity()
                return result
        raise Failure("request never ended alone", request.id)
