"""Engines that draft with a model, small random draft models of every kind, and what a draft model has of a request.

All that tests read of the drafter's inside is read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from toy_block_heads import write_block_head
from toy_heads import SIZES, write_head
from toy_parallel_heads import write_parallel_head

from specserve.kv.slots import slots_of
from specserve.protocols import DraftPass
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.engine.engine import Engine

TREE_KINDS = ("standalone", "eagle", "eagle3", "mtp")
"""Those that draft trees, too."""
KINDS = (*TREE_KINDS, "dspark", "peagle")
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "eagle": ("eagle", {}),
    "eagle3": ("specforge", {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}),
    "mtp": ("nextn", {}),
}
"""(format, keys of config.json) of heads for targets of any depth."""


def write_target(path: Path, **changes: Any) -> Path:
    """A random target of the sizes that `toy_heads` has heads for, of two layers."""
    return write_checkpoint(path, **(SIZES | {"num_hidden_layers": 2, "max_position_embeddings": 512} | changes))


def write_draft(path: Path, kind: str, target: Path, **changes: Any) -> Path:
    """A random draft model of this kind; the stand-alone one is the target itself. `changes`: of config.json."""
    if kind == "standalone":
        return target
    if kind == "dspark":
        return write_block_head(path, kind, **changes)
    if kind == "peagle":
        return write_parallel_head(path, **changes)
    form, keys = FORMS[kind]
    return write_head(path, form, **(keys | changes))


def eagle_options(draft: Path, beside: Sequence[str] = (), **settings: Any) -> dict[str, Any]:
    return {"plugins": ("eagle", *beside), "plugin_options": {"eagle": {"model": str(draft), **settings}}}


def eagle_engine(
    target: Path,
    draft: Path,
    *,
    steps: int = 4,
    planner: Any = None,
    beside: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Engine:
    """An engine whose drafts `planner` chooses from; without one all are verified. `settings`: eagle's others."""
    chosen = eagle_options(draft, beside, **({"steps": steps} | (settings or {})))
    chosen["plugin_options"] |= options.pop("plugin_options", {})
    engine = make_engine(target, **chosen, **options).engine
    return with_planner(engine, planner or FixedWidthPlanner(32))


def with_planner(engine: Engine, planner: Any) -> Engine:
    engine.planner = engine.scheduler.planner = engine.drafting.planner = planner
    return engine


class Recorder(FixedWidthPlanner):
    """Remembers every draft by request and number of committed tokens; verifies all of them, or none."""

    def __init__(self, max_draft_tokens: int = 32, *, verifies: bool = True) -> None:
        super().__init__(max_draft_tokens)
        self.verifies = verifies
        self.drafts: dict[tuple[str, int], tuple[int, ...]] = {}

    def choose(self, requests, budget, base_rows):
        for request in requests:
            if request.draft is not None:
                self.drafts[request.id, len(request.tokens)] = request.draft.tokens
        return super().choose(requests, budget, base_rows) if self.verifies else [None] * len(requests)


def drafter_of(engine: Engine) -> Any:
    """The eagle drafter, out of its guard."""
    return next(guard.drafter for guard in engine.drafting.guards if guard.name == "eagle")


def runtime_of(engine: Engine) -> Any:
    return drafter_of(engine).runtime


def draft_cache(engine: Engine) -> Any:
    """The `KVCache` of the draft layers."""
    return runtime_of(engine).resources.attention.cache


class FailingPasses(DraftPass):
    """Draft passes of which some raise: calls are counted from 1, over committed tokens or over draft tokens."""

    def __init__(self, engine: Engine, calls: Collection[int], *, from_target: bool = True) -> None:
        self.drafter, self.calls, self.from_target = drafter_of(engine), calls, from_target
        self.passes, self.num_calls = self.drafter.passes, 0
        self.drafter.passes = self

    def step(self, *arguments: Any, from_target: bool) -> Any:
        self.num_calls += from_target == self.from_target
        if from_target == self.from_target and self.num_calls in self.calls:
            raise RuntimeError("a pass failed")
        return self.passes.step(*arguments, from_target=from_target)

    def draft(self, committed: Any, hidden: Any, *blocks: Any) -> Any:
        """Of a block head: a pass over committed tokens, and one over draft tokens."""
        self.num_calls += 1
        if self.num_calls in self.calls:
            if not self.from_target:
                self.passes.step(committed, hidden, [], 1, from_target=True)
            raise RuntimeError("a pass failed")
        return self.passes.draft(committed, hidden, *blocks)

    def mend(self) -> None:
        self.drafter.passes = self.passes


class FailingChains(FailingPasses):
    """Of calls that make whole chains, some raise."""

    def chains(self, *arguments: Any) -> Any:
        self.num_calls += 1
        if self.num_calls in self.calls:
            raise RuntimeError("a pass failed")
        return self.passes.chains(*arguments)


class DraftKV(NamedTuple):
    """What the draft layers have of one request, in the order of its positions."""

    tokens: list[int]
    data: Tensor
    """[layers, 2, positions, ...] where slots are stored one by one, of whole blocks elsewhere."""
    states: Tensor | None
    """[complete blocks, W], the hidden states that blocks keep."""


def is_by_slot(engine: Engine) -> bool:
    spec = runtime_of(engine).resources.attention.spec
    return bool(spec.kv_layout.name == "by_slot")


def draft_kv(engine: Engine, sequence: Any) -> DraftKV:
    """All positions of a running request, cut to whole blocks where a block is the least that can be compared.

    Position 0 has no key where the layers read hidden states, and nobody reads what lies there: position 1 is copied
    there.
    """
    runtime, cache, request = runtime_of(engine), draft_cache(engine), sequence.request
    size, reads_hidden = cache.block_size, runtime.layers.reads_hidden
    count = min(sequence.num_fed, len(request.tokens))
    if not is_by_slot(engine):
        count -= count % size
    if reads_hidden and count > 1:
        cache.move(slots_of(request.blocks, [1], size), slots_of(request.blocks, [0], size))
    held = request.blocks[: -(-count // size)]
    by_block = cache.data.unflatten(2, (cache.num_blocks, size))[:, :, held]
    states = runtime.draft_blocks.states[request.blocks[: sequence.num_finalized]].clone() if reads_hidden else None
    count = 0 if reads_hidden and count == 1 else count
    return DraftKV(list(request.tokens[:count]), by_block.flatten(2, 3)[:, :, :count].clone(), states)


def memory_for(num_blocks: int, target: Path, draft: Path, **options: Any) -> str:
    """The kv_memory of an engine with `num_blocks` blocks."""
    engine = eagle_engine(target, draft, **(options | {"kv_memory": "64M"}))
    own, states = draft_cache(engine), runtime_of(engine).draft_blocks.states
    per_block = own.data.nbytes // own.num_blocks
    fixed = per_block * (own.num_blocks - engine.parts.cache.num_blocks)
    per_block += engine.parts.cache.data.nbytes // engine.parts.cache.num_blocks
    per_block += 0 if states is None else states.nbytes // len(states)
    return str(fixed + num_blocks * per_block)


def fresh_draft_kv(target: Path, draft: Path, tokens: Sequence[int], **options: Any) -> DraftKV:
    """Of these tokens as one prompt, by an engine that has computed nothing else."""
    return each_fresh_draft_kv(target, draft, {"fresh": tokens}, **options)["fresh"]


def each_fresh_draft_kv(
    target: Path, draft: Path, texts: Mapping[str, Sequence[int]], **options: Any
) -> dict[str, DraftKV]:
    """Of each text as one prompt, one after the other in an engine that keeps nothing of those before."""
    whole = {"prefix_cache": False, "max_num_batched_tokens": 4096, "kv_memory": "64M"}
    engine, found = eagle_engine(target, draft, **(options | whole)), {}
    for name, tokens in texts.items():
        engine.add(toy_request(name, tokens, max_tokens=3, ignore_eos=True))
        engine.step()
        sequence = runtime_of(engine).sequences[name]
        assert sequence.num_fed >= len(tokens)
        found[name] = draft_kv(engine, sequence)
        engine.abort(name)
        assert not runtime_of(engine).sequences
    return found


def transformers_target(path: Path) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def assert_drafted_for_as_if_not_cached(target: Path, draft: Path) -> None:
    """A second request whose prompt begins with all of the first one's, with the prefix cache and without."""
    prompt = tuple((7 * i + i // 5) % 300 for i in range(70))

    def second(*, prefix_cache: bool) -> tuple[int, dict[str, list[int]], dict[tuple[str, int], tuple[int, ...]]]:
        recorder = Recorder()
        engine = eagle_engine(target, draft, planner=recorder, prefix_cache=prefix_cache)
        run_requests(engine, [toy_request("first", prompt, max_tokens=4, ignore_eos=True)])
        recorder.drafts.clear()
        outcome = run_requests(engine, [toy_request("second", (*prompt, 5), max_tokens=9, ignore_eos=True)])
        return outcome.outputs["second"].steps[0].cached_tokens, outcome.tokens(), recorder.drafts

    cached, *hit = second(prefix_cache=True)
    none, *computed = second(prefix_cache=False)
    assert (cached, none) == (64, 0)
    assert hit == computed
    assert len(hit[1]) > 5
