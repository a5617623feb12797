"""What one trial reached: its kinds, which `coverage` counts, and figures that add up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fuzz.published import publisher_of
from specserve.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.plans import EnginePlan, ModelPlan, RequestPlan
    from fuzz.trial import Trial

DEFAULTS = SamplingParams()


def kinds_of(trial: Trial) -> set[str]:
    plan = trial.plan
    kinds = {*model_kinds(plan.model), *engine_kinds(plan.engine), f"mode {plan.mode}"}
    for request in plan.requests or ():
        kinds |= {*request_kinds(request)}
    return kinds | {*happened(trial)} | {*accepted(trial)}


def model_kinds(model: ModelPlan) -> Iterator[str]:
    yield from (f"family {model.family}", f"dtype {model.dtype}", f"weights {model.weights}")
    if model.is_demo:
        return
    if model.quantised is not None:
        yield f"quantised {model.quantised}"
    if model.stored != model.dtype:
        yield "stored in another dtype"
    config = model.config
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    yield "heads MHA" if heads == kv_heads else "heads MQA" if kv_heads == 1 else "heads GQA"
    if config["head_dim"] % 16:
        yield "odd head size"
    if config["hidden_size"] % 2 or config["intermediate_size"] % 2:
        yield "odd width"
    yield f"rope {(config.get('rope_scaling') or {}).get('rope_type', 'default')}"
    for key, kind in (("partial_rotary_factor", "rope partial"), ("tie_word_embeddings", "tied head")):
        if config.get(key):
            yield kind
    if config.get("sliding_window"):
        yield "sliding window"
    if model.eos is not None:
        known = all(token < config["vocab_size"] for token in model.eos)
        yield "end of text of its own" if known else "end of text beyond the vocabulary"


def engine_kinds(plan: EnginePlan) -> Iterator[str]:
    yield from (f"kernels {plan.kernels}", f"front {plan.front}", f"drafters {len(plan.drafters)}")
    yield from (f"drafter {name}" for name in plan.drafters)
    if plan.head:
        yield f"drafter eagle, a {plan.head} head"
    if plan.drafters:
        yield f"planner {plan.planner}"
    if plan.processor:
        yield f"processor {plan.processor}"
    if plan.grammar:
        yield "grammar"
    if "ngram" in plan.drafters:
        yield f"ngram {plan.ngram.get('match_type', 'learned')}"
        if plan.corpus:
            yield "ngram corpus"
    if plan.kv_events is not None:
        yield f"KV events {plan.kv_events['encoding']}"
    if plan.by_transformers:
        yield "layers by transformers"
    if plan.ranks > 1:
        yield f"ranks {plan.ranks}"
    yield "one thread" if plan.threads == 1 else "several threads"


def request_kinds(request: RequestPlan) -> Iterator[str]:
    params = request.params
    for name in params.__struct_fields__:
        if getattr(params, name) != getattr(DEFAULTS, name) and name != "max_tokens":
            yield f"field {name}"
    yield "greedy" if params.temperature < 1e-5 else "sampled"
    if params.allowed_token_ids and not params.logit_bias:
        yield "allowed tokens alone"
    if params.logit_bias == {}:
        yield "empty bias"
    if request.priority:
        yield "priority"
    if request.salt:
        yield "cache salt"
    if not request.speculation.enabled:
        yield "speculation declined"
    if request.speculation.drafters is not None:
        yield "drafters of its own" if request.speculation.drafters else "no drafter of its own"


def happened(trial: Trial) -> Iterator[str]:
    """What the engine under test did."""
    metrics, served = trial.built.engine.metrics, trial.served
    publisher = publisher_of(trial.built)
    yield f"instruction set {trial.instruction_set}"
    if trial.plan.engine.cpu_weights != "auto":
        yield f"weights kept as {trial.plan.engine.cpu_weights}"
    if trial.plan.engine.cpu_activations != "auto":
        yield f"activations as {trial.plan.engine.cpu_activations}"
    if trial.plan.engine.cpu_kv != "auto":
        yield "8-bit cache"
    backends = trial.attention["hybrid"]
    for mode, _ in metrics.graph_steps:
        if trial.plan.engine.graphs != "none":
            yield f"graphs {trial.plan.engine.graphs}, ran {mode}"
    for mode, _ in metrics.graph_draft_passes:
        yield f"draft passes ran {mode}"
    yield "hybrid attention" if backends else f"attention {trial.attention['attention']}"
    events = {
        "preempted": metrics.num_preemptions,
        "prefix hit": metrics.prefix_cache_hits,
        "drafter at fault": sum(metrics.drafter_faults.values()),
        "drafter switched off": len(metrics.drafters_disabled),
        **{f"{plugin} at fault": count for (plugin, _, _), count in metrics.faults.counts.items()},
        **{f"{plugin} switched off": 1 for plugin, _ in metrics.faults.disabled},
        "KV events published": publisher.num_events if publisher else 0,
        "aborted": served.counts["aborted"],
        "id used again": served.counts["again"],
        "slow reader": served.counts["slow reader"],
        "refused at admission": trial.num_refused,
        "no room for an adapter": trial.adapters.num_refused,
        "compared with transformers": trial.num_compared,
        "hidden states seen": sum(drafter.num_hidden_seen for drafter in trial.drafters.values()),
    }
    yield from (kind for kind, count in events.items() if count)
    yield from (f"adapter {event}" for event in trial.adapters.done)
    for request, _, result in served.all():
        yield f"ended by {result.finish_reason or 'abort'}"
        if result.stop_string:
            yield "ended by a stop string"
        if request.adapter:
            yield "served under an adapter"


def accepted(trial: Trial) -> Iterator[str]:
    """Whose guesses came true; of several drafters nobody can tell whose."""
    drafters = trial.plan.engine.drafters
    if trial.built.engine.metrics.num_accepted_tokens:
        yield f"accepted from {drafters[0] if len(drafters) == 1 else 'several'}"


def figures_of(trial: Trial) -> Counter[str]:
    metrics = trial.built.engine.metrics
    return Counter(
        requests=len(trial.plan.requests or ()),
        tokens=sum(len(answered.result.tokens) for answered in trial.served.all()),
        steps=metrics.num_steps,
        preemptions=metrics.num_preemptions,
        prefix_hits=metrics.prefix_cache_hits,
        drafted=metrics.num_draft_tokens,
        accepted=metrics.num_accepted_tokens,
        faults=metrics.drafter_faults.total() + metrics.faults.counts.total(),
        aborted=trial.served.counts["aborted"],
        compared=trial.num_compared,
    )
