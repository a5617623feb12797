"""Simpler versions of a plan, one change each: what the minimiser tries, the largest steps first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.plans import EnginePlan, Plan, RequestPlan, changed
from specserve.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Requests = tuple[RequestPlan, ...]

KEPT_OF_ENGINE = ("seed", "max_model_len")
KEPT_OF_PARAMS = ("max_tokens", "seed", "temperature")
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)
SIZES += ("head_dim", "max_position_embeddings")
PLAIN_MODELS: tuple[dict[str, Any], ...] = (
    *(
        {"weights": "plain"},
        {"quantised": None},
        {"eos": None},
        {"family": "llama"},
        {"dtype": "float32", "stored": "float32"},
    ),
)
EASY_SIZES = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "vocab_size": 320, "head_dim": 32}


def simpler(plan: Plan) -> Iterator[Plan]:
    for kind in (fewer_requests, simpler_engine, fewer_adapters, simpler_requests, simpler_model):
        yield from kind(plan)


def fewer_requests(plan: Plan) -> Iterator[Plan]:
    """Without half of them, a quarter, ... one."""
    requests = plan.requests or ()
    size = len(requests) // 2
    while size:
        for begin in range(0, len(requests), size):
            yield changed(plan, requests=requests[:begin] + requests[begin + size :])
        size //= 2


def simpler_engine(plan: Plan) -> Iterator[Plan]:
    """Fewer drafters, and one field after the other as it is by default."""
    engine = plan.engine
    for name in engine.drafters:
        yield with_drafters(plan, tuple(n for n in engine.drafters if n != name))
    plain = EnginePlan()
    yield with_drafters(plan, ())
    for name in engine.__struct_fields__:
        default = getattr(plain, name)
        if name not in (*KEPT_OF_ENGINE, "drafters") and getattr(engine, name) != default:
            yield changed(plan, engine=changed(engine, **{name: default}))
    if engine.prefix_cache:
        yield changed(plan, engine=changed(engine, prefix_cache=False))
    if plan.transformers:
        yield changed(plan, transformers=False)


def with_drafters(plan: Plan, names: tuple[str, ...]) -> Plan:
    """Requests name no others."""
    requests = plan.requests and tuple(
        request
        if (allowed := request.speculation.drafters) is None
        else changed(request, speculation=changed(request.speculation, drafters=tuple({*allowed} & {*names})))
        for request in plan.requests
    )
    return changed(plan, engine=changed(plan.engine, drafters=names), requests=requests)


def fewer_adapters(plan: Plan) -> Iterator[Plan]:
    requests = plan.requests or ()
    if plan.adapters:
        bare = tuple(changed(request, adapter=None) for request in requests)
        yield changed(plan, adapters=(), events=(), requests=bare)
    for i in range(len(plan.events)):
        yield changed(plan, events=plan.events[:i] + plan.events[i + 1 :])
    used = {request.adapter for request in requests} | {event.name for event in plan.events}
    if any(adapter.name not in used for adapter in plan.adapters):
        yield changed(plan, adapters=tuple(adapter for adapter in plan.adapters if adapter.name in used))


def simpler_model(plan: Plan) -> Iterator[Plan]:
    model = plan.model
    if model.is_demo:
        return
    for fields in (*PLAIN_MODELS, {"stored": model.dtype}):
        if (other := changed(model, **fields)) != model:
            yield changed(plan, model=other)
    for key in model.config:
        if key not in SIZES:
            rest = {k: v for k, v in model.config.items() if k != key}
            yield changed(plan, model=changed(model, config=rest))
    largest = max((token for request in plan.requests or () for token in request.prompt), default=0)
    for key, value in EASY_SIZES.items():
        if model.config[key] != value and (key != "vocab_size" or largest < value):
            yield changed(plan, model=changed(model, config=model.config | {key: value}))


def simpler_requests(plan: Plan) -> Iterator[Plan]:
    """Each change to all requests at once, then to one of them."""
    requests = plan.requests or ()
    for change in REQUEST_CHANGES:
        every = tuple(change(request) for request in requests)
        if every != requests:
            yield changed(plan, requests=every)
    for i, request in enumerate(requests):
        for other in simpler_request(request):
            yield changed(plan, requests=(*requests[:i], other, *requests[i + 1 :]))


def simpler_request(request: RequestPlan) -> Iterator[RequestPlan]:
    for change in REQUEST_CHANGES:
        if (other := change(request)) != request:
            yield other
    plain, params = SamplingParams(), request.params
    for name in params.__struct_fields__:
        if name not in KEPT_OF_PARAMS and getattr(params, name) != getattr(plain, name):
            yield with_params(request, **{name: getattr(plain, name)})


def with_params(request: RequestPlan, **fields: Any) -> RequestPlan:
    return changed(request, params=changed(request.params, **fields))


def with_plain_params(request: RequestPlan) -> RequestPlan:
    kept = {name: getattr(request.params, name) for name in KEPT_OF_PARAMS}
    return changed(request, params=SamplingParams(**kept))


def with_plain_circumstances(request: RequestPlan) -> RequestPlan:
    return RequestPlan(id=request.id, prompt=request.prompt, params=request.params, adapter=request.adapter)


REQUEST_CHANGES: tuple[Callable[[RequestPlan], RequestPlan], ...] = (
    with_plain_params,
    with_plain_circumstances,
    lambda request: changed(request, adapter=None),
    lambda request: changed(request, aborted_after=None),
    lambda request: changed(request, arrives=0),
    lambda request: changed(request, salt="", priority=0),
    lambda request: with_params(request, temperature=0.0),
    lambda request: with_params(request, min_tokens=0, max_tokens=max(1, request.params.max_tokens // 2)),
    lambda request: with_params(request, min_tokens=0, max_tokens=max(1, request.params.max_tokens - 1)),
    lambda request: changed(request, prompt=request.prompt[: -(-len(request.prompt) // 2)]),
    lambda request: changed(request, prompt=request.prompt[len(request.prompt) // 2 :]),
    lambda request: changed(request, prompt=request.prompt[:-1] or request.prompt),
)
