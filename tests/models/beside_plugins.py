"""What runs beside a family of models: engines with and without drafts, their requests and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from expert_adapters import write_per_expert, write_stacked

from specserve.kv.cache import KVCache
from specserve.models.read_config import read_config
from specserve.models.safetensors_header import SINGLE, tensor_names
from specserve_workbench.testing.engines import make_engine, verify_everything
from specserve_workbench.testing.requests import STRUCTURED, structured_requests, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_of, under, write_adapter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

BESIDE: dict[str, dict[str, dict[str, Any]]] = {
    "ngram": {},
    "eagle": {"eagle": {"topk": 3, "steps": 3}},
    "ngram lora": {"lora": {"max_loaded": 4}},
    "eagle lora": {"lora": {"max_loaded": 4}, "eagle": {"steps": 2}},
    "ngram grammar": {},
    "ngram hybrid_attn": {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged", "verify": "cpu_paged"}},
    "ngram adaptive": {"adaptive": {"cost_cache": "none"}},
    "ngram eagle adaptive": {"adaptive": {"cost_cache": "none"}},
    "ngram graphs": {},
    "eagle graphs": {"eagle": {"steps": 2}},
    "eagle int8": {"cpu": {"weights": "int8", "kv": "int8"}},
    "ngram lora int8": {"lora": {"max_loaded": 4}, "cpu": {"weights": "int8", "activations": "int8"}},
}
"""Plugins and their options. The draft model of eagle is the model itself, with its experts where it has any."""
BESIDE_BLOCKS: dict[str, dict[str, dict[str, Any]]] = {
    "eagle ngram": {"eagle": {"steps": 3}},
    "eagle grammar": {"eagle": {"topk": 2, "steps": 3}},
    "eagle hybrid_attn": BESIDE["ngram hybrid_attn"] | {"eagle": {"steps": 3}},
    "eagle lora grammar": {"lora": {"max_loaded": 4}, "eagle": {"topk": 2, "steps": 2}},
}
"""The same for draft heads of the model's own."""
OPTIONS = BESIDE | BESIDE_BLOCKS
LIMITS = ("1", "8 in chunks", "32 preempted")
"""Names of `Case.limits`."""
DECIDE = ("cpu", "lora", "grammar", "hybrid_attn")
"""Plugins that decide what is computed or allowed; the others draft, plan or replay."""
BLOCK = "mtp.fc.weight"
"""Of a checkpoint with a block that drafts."""
BLOCKS = 32
"""Of a cache in which 32 requests preempt each other, since twenty of them begin in a block each and end in three."""


class Case(NamedTuple):
    model: Path
    beside: str
    kernels: str
    dtype: str

    @property
    def graphs(self) -> str:
        """The most that the kernels' attention allows."""
        return "full" if self.kernels == "cpu" else "piecewise"

    def engine(self, **limits: Any) -> Engine:
        """With drafts, all of which are verified unless adaptive decides."""
        names = [name for name in self.beside.split() if name not in ("graphs", "int8")]
        graphs = {"graphs": self.graphs, "graph_buckets": (4, 8, 40)} if "graphs" in self.beside else {}
        engine = self._engine(self.tables(names), **graphs, **limits)
        return engine if "adaptive" in names else verify_everything(engine)

    def plain_engine(self) -> Engine:
        """Without drafts."""
        tables = self.tables([name for name in self.beside.split() if name in DECIDE])
        if "hybrid_attn" in tables:
            tables["hybrid_attn"]["verify"] = "decode"  # nothing is verified
        return self._engine(tables)

    def _engine(self, tables: dict[str, dict[str, Any]], **options: Any) -> Engine:
        options |= {"plugins": tuple(tables), "plugin_options": tables, "dtype": self.dtype}
        return make_engine(self.model, **options).engine

    def tables(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """By plugin its options."""
        with_kernels = ["cpu", *names] if self.kernels == "cpu" else names
        tables = {name: dict(OPTIONS[self.beside].get(name, {})) for name in with_kernels}
        if "eagle" in tables:
            tables["eagle"]["model"] = str(draft_model_of(self.model))
        if "lora" in tables:
            tables["lora"]["adapters"] = {name: str(path) for name, path in adapters_of(self.model)}
        if "hybrid_attn" in tables and self.kernels == "torch":  # which cpu_paged does not serve
            tables["hybrid_attn"] = dict.fromkeys(("prefill", "decode", "verify"), "sdpa")
        return tables

    def limits(self) -> dict[str, dict[str, Any]]:
        """By name: how many requests run at once, and in how little room."""
        config = read_config(self.model)
        plain = (config.num_kv_heads, config.head_dim)
        shapes = config.head_shapes or [plain] * len(config.attention_layers)
        dtype = getattr(torch, self.dtype)
        # a draft model has as many layers, in each of these blocks and in one more for each request's drafts
        blocks = 2 * BLOCKS + 32 if "eagle" in self.beside else BLOCKS
        states = 16 * sum(config.token_widths) * dtype.itemsize
        keys = sum(KVCache.bytes_per_block(1, 16, *shape, dtype) for shape in shapes)
        room = blocks * (keys + states)
        return {
            "1": {"max_num_seqs": 1},
            "8 in chunks": {"max_num_seqs": 8, "max_num_batched_tokens": 40},
            "32 preempted": {"max_num_seqs": 32, "kv_memory": str(room)},
        }


def draft_model_of(model: Path) -> Path:
    """The model itself, or the block that drafts within it; of one with recurrent layers, or with layers that differ in
    their heads, a Llama, whose guesses are right where requests leave no choice: see `requests_for`."""
    config = read_config(model)
    if not (config.recurrent or config.layer_attention) or BLOCK in tensor_names(model / SINGLE):
        return model
    path = model.parent / f"{model.name}-draft"
    return path if path.exists() else write_checkpoint(path, num_hidden_layers=1)


def requests_for(beside: str, count: int, num_repetitive: int = 3) -> list[GenerateRequest]:
    """So many, greedy and sampled, and some that repeat themselves or are structured."""
    repetitive = [
        toy_request(f"r{i}", (5, 6, 6), max_tokens=40, logit_bias={6: 20.0 + i}, seed=i, ignore_eos=True)
        for i in range(num_repetitive)
    ]
    return [*repetitive, *varied_requests(count), *(structured_requests(STRUCTURED) if "grammar" in beside else ())]


def for_engine(engine: Engine, requests: list[GenerateRequest], beside: str) -> list[GenerateRequest]:
    """Under the adapters of the engine in turn, and under none."""
    if "lora" not in beside:
        return requests
    names = (None, "experts", "attention", "stacks")
    return under(lora_of(engine), requests, [names[i % len(names)] for i in range(len(requests))])


def adapters_of(model: Path) -> Iterator[tuple[str, Path]]:
    """Of attention, and of all experts and routers in both of PEFT's forms; a model without experts has others."""
    folder = model.parent / f"{model.name}-adapters"
    yield "attention", write_adapter(folder / "attention", model, targets=("q_proj", "v_proj", "o_proj"), rank=3)
    if read_config(model).experts is None:
        yield "experts", write_adapter(folder / "experts", model, seed=1)
        yield "stacks", write_adapter(folder / "stacks", model, seed=2, rank=9)
    else:
        yield "experts", write_per_expert(folder / "experts", model, seed=1)
        yield "stacks", write_stacked(folder / "stacks", model, seed=2)
