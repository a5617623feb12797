"""Engines for tests: made in one line, run to the end, compared.

Owns how a test builds an engine with in-process plugins and what it reads from a run. Needs no server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from specserve.config import EngineConfig
from specserve.declare import Compatible, InProcessPlugin, PluginDeclaration, Provides, Reference
from specserve.engine.assembly import Assembled, assemble
from specserve.engine.drafters import SeveralDrafters
from specserve.engine.drafting import Drafting
from specserve.guards.observer import GuardedObserver
from specserve.plugins.features import PLUGIN_FEATURES
from specserve.plugins.host import PluginHost
from specserve_workbench.testing.composers import everything
from specserve_workbench.testing.drafters import DrafterPlugin, PlannerPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from specserve.engine.engine import Engine
    from specserve.metrics import EngineMetrics
    from specserve.protocols import Drafter, DraftPlanner, MetricsSource, Observer, OutputObserver
    from specserve.types import GenerateRequest, RequestOutput, TokenLogprobs

DEFAULTS: dict[str, Any] = {"threads": 1, "max_num_seqs": 8, "kv_memory": "64M", "default_plugins": False}


OF_SCHEDULING = frozenset(
    {
        *("max_num_seqs", "max_num_batched_tokens", "max_draft_tokens", "block_size", "kv_memory"),
        *("planner", "prefix_cache", "chunked_prefill", "graphs", "graph_buckets", "graph_memory", "graph_warm_up"),
    }
)
"""Options that decide no token and no log-probability."""
PLAIN_RUNS: dict[tuple[str, bytes, bytes], Run] = {}


class Output(NamedTuple):
    """All that one request gave."""

    tokens: list[int]
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs]
    finish_reason: str | None
    steps: list[RequestOutput]


class Run(NamedTuple):
    """Outputs by request id, and the engine's counters afterwards."""

    outputs: dict[str, Output]
    metrics: EngineMetrics

    def tokens(self) -> dict[str, list[int]]:
        return {request_id: output.tokens for request_id, output in self.outputs.items()}

    def decided(self) -> dict[str, tuple[Any, ...]]:
        """What must not depend on speculation, batching or chunking: all but the grouping of tokens into steps."""
        return {request_id: tuple(output[:4]) for request_id, output in self.outputs.items()}


def drafter_plugin(make: Callable[[], Drafter], planner: DraftPlanner | None = None) -> InProcessPlugin:
    """A plugin named `drafter` that provides chains and trees, and a planner if one is given."""
    provides: dict[str, Reference | Provides | str] = {
        "draft.chain": "a test's drafter",
        "draft.tree": "a test's drafter",
    }
    compatible: dict[str, Reference | Compatible | str] = {}
    if planner is not None:
        provides["planner.adaptive"] = "a test's planner"
        compatible = dict.fromkeys(PLUGIN_FEATURES, "a test's planner bounds drafts and changes nothing else")
    declaration = PluginDeclaration(name="drafter", provides=provides, compatible=compatible)
    return InProcessPlugin(DrafterPlugin(make, planner), declaration)


def planner_plugin(planner: DraftPlanner) -> InProcessPlugin:
    """A plugin named `planner`, which may run beside all."""
    fits = Compatible("a test's planner bounds drafts and changes nothing else")
    declaration = PluginDeclaration(
        name="planner",
        provides={"planner.adaptive": "a test's planner"},
        compatible=dict.fromkeys(PLUGIN_FEATURES, fits),
    )
    return InProcessPlugin(PlannerPlugin(planner), declaration)


def make_engine(
    model: Path | str,
    drafter: Drafter | None = None,
    *,
    planner: DraftPlanner | None = None,
    extra: Mapping[str, InProcessPlugin] | None = None,
    **options: Any,
) -> Assembled:
    """An engine on `model`, one thread and a small cache unless `options` (fields of EngineConfig) say otherwise.

    A drafter's proposals are all verified unless a planner is given. One that is given plans for drafters of `plugins`,
    too.
    """
    plugins = dict(extra or {})
    if drafter is not None:
        plugins["drafter"] = drafter_plugin(lambda: drafter, planner or everything())
    elif planner is not None:
        plugins["planner"] = planner_plugin(planner)
    options = DEFAULTS | options
    names = (*options.pop("plugins", ()), *replaying(options), *plugins)
    config = EngineConfig(model=str(model), plugins=names, **options)
    return assemble(config, PluginHost.start(config, plugins))


def replaying(options: Mapping[str, object]) -> tuple[str, ...]:
    """The plugin that replays steps, where the options ask for graphs and for no default plugins."""
    is_default = options["default_plugins"] or options.get("graphs", "none") in ("none", "auto")
    return () if is_default else ("graphs",)


def verify_everything(engine: Engine, max_draft_tokens: int = 32) -> Engine:
    """Let the engine draft in every step and verify all of it, so that counts do not depend on the machine's speed."""
    set_planner(engine, everything(max_draft_tokens))
    return engine


def set_planner(engine: Engine, planner: DraftPlanner) -> None:
    """Let it decide from now on, in place of the one that the engine was built with."""
    engine.planner = engine.scheduler.planner = planner
    if isinstance(engine.drafting, Drafting):
        engine.drafting.planner = planner
        if isinstance(engine.drafting.drafters, SeveralDrafters) and planner.composer is not None:
            engine.drafting.drafters.composer = planner.composer


def watch(engine: Engine, observer: Observer | OutputObserver | MetricsSource) -> None:
    """Add an observer of every step from now on, as if it belonged to a plugin named `test`."""
    cast("list[GuardedObserver]", engine.parts.guarded_observers).append(
        GuardedObserver("test", observer, engine.metrics.faults)
    )


def run_requests(engine: Engine, requests: Iterable[GenerateRequest]) -> Run:
    """Serve them to their end and check the engine's invariants."""
    outputs: dict[str, Output] = {}

    def on_output(step: RequestOutput) -> None:
        output = outputs.get(step.request_id) or Output([], [], [], None, [])
        output.tokens.extend(step.tokens)
        output.logprobs.extend(step.logprobs or ())
        output.prompt_logprobs.extend(step.prompt_logprobs or ())
        output.steps.append(step)
        outputs[step.request_id] = output._replace(finish_reason=step.finish_reason)

    engine.run(requests, on_output)
    return Run(outputs, engine.metrics)


def run(model: Path | str, requests: Iterable[GenerateRequest], drafter: Drafter | None = None, **options: Any) -> Run:
    """`make_engine` and `run_requests` in one."""
    return run_requests(make_engine(model, drafter, **options).engine, requests)


def plain_run(model: Path | str, requests: Sequence[GenerateRequest], **options: Any) -> Run:
    """A run without drafts, made once for all calls that may expect nothing else. Parts that are given as objects are
    run anew."""
    if "extra" in options:
        return run(model, requests, **options)
    deciding = {name: value for name, value in (DEFAULTS | options).items() if name not in OF_SCHEDULING}
    weights = Path(model) / "model.safetensors"
    written = weights.stat().st_mtime_ns if weights.is_file() else 0
    key = (f"{model} {written}", msgspec.json.encode(requests), msgspec.json.encode(deciding, order="sorted"))
    if key not in PLAIN_RUNS:
        PLAIN_RUNS[key] = run(model, requests, **deciding)
    return PLAIN_RUNS[key]


def assert_lossless(
    model: Path | str,
    requests: Sequence[GenerateRequest],
    make_drafter: Callable[[Mapping[str, Sequence[int]]], Drafter],
    **options: Any,
) -> Run:
    """Tokens, log-probabilities and ends are the same without a drafter and with the one that `make_drafter`
    makes from the expected outputs. Returns the speculative run, for its acceptance counts.

    What is expected is computed once for a model, requests, dtype and kernels, and without the `options` of scheduling
    and memory: these may change nothing either."""
    plain = plain_run(model, requests, **options)
    speculative = run(model, requests, make_drafter(plain.tokens()), **options)
    assert not speculative.metrics.drafter_faults, speculative.metrics.drafter_faults
    for request_id, expected in plain.decided().items():
        assert speculative.decided()[request_id] == expected, f"request {request_id} differs under speculation"
    return speculative


def accepted(run: Run) -> tuple[int, int]:
    """(accepted, drafted) over all requests of a run."""
    return run.metrics.num_accepted_tokens, run.metrics.num_draft_tokens
