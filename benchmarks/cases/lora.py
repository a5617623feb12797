"""What adapters cost: the same requests on the base model, under one adapter, and under eight at once.

The adapters are random, rank 16 on every linear layer, written in PEFT's format on the spot. Tokens per second over
whole runs, prompts included. N-gram: what speculation gains on an edit with and without an adapter; a random adapter
changes the text, so each is held against its own plain decoding. PEFT: one request in transformers, not merged.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from safetensors.torch import save_file

from benchmarks.cases.pays import decode, edited, request
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of
from benchmarks.lib.workload import DTYPE, KV_MEMORY, MODEL, PROMPT_LEN, greedy, prompts, serve_all
from specserve.config import EngineConfig
from specserve.engine.assembly import Assembled, assemble
from specserve.models.config import read_config
from specserve.models.locate import locate_model
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.types import GenerateRequest

RANK, MANY_ADAPTERS, NUM_TOKENS = 16, 8, 128
COUNTS = (8, 32)
ONE, MIXED, SHARE_OF_GAIN = 0.85, 0.75, 0.9


def run(options: Options) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        paths = {f"adapter-{i}": write_adapter(Path(directory) / f"adapter-{i}", i) for i in range(MANY_ADAPTERS)}
        plain, ngram = Served.start(options, paths), Served.start(options, paths, "ngram")
        rows, checks, raw = throughput(plain, options)
        for part in (speculation(plain, ngram, options), peft(plain, paths["adapter-0"], options)):
            rows += part[0]
            checks += part[1]
            raw |= part[2]
    return Result(
        title=f"adapters of rank {RANK} on every linear layer, demo model, {DTYPE}, {options.threads} threads",
        columns=("case", "without, tokens/s", "with, tokens/s", "with / without"),
        rows=rows,
        checks=checks,
        notes=["Ratios are medians over rounds of neighbouring runs."],
        raw=raw,
    )


class Served(NamedTuple):
    """An engine with adapters and the namespaces under which it serves them."""

    assembled: Assembled
    namespaces: list[str]

    @classmethod
    def start(cls, options: Options, paths: dict[str, Path], *plugins: str) -> Served:
        config = EngineConfig(
            model=MODEL, dtype=DTYPE, threads=options.threads, kv_memory=KV_MEMORY, prefix_cache=False,
            plugins=("lora", *plugins), plugin_options={"lora": {"adapters": {k: str(v) for k, v in paths.items()}}},
        )  # fmt: skip
        host = PluginHost.start(config)
        assembled = assemble(config, host)
        return cls(assembled, [host.collect("resolve_model", name=name)[0][1].namespace for name in paths])

    def rate(self, requests: list[GenerateRequest], num_adapters: int) -> float:
        """Tokens per second, request i under adapter i of so many; 0: all on the base model."""
        return serve_all(self.assembled.engine, self.under(requests, num_adapters)).rate

    def under(self, requests: list[GenerateRequest], num_adapters: int) -> list[GenerateRequest]:
        namespaces = self.namespaces[:num_adapters] or [""]
        return [
            msgspec.structs.replace(one, namespace=namespaces[i % len(namespaces)]) for i, one in enumerate(requests)
        ]


Part = tuple[list[tuple[str, ...]], list[Check], dict[str, list[float]]]


def throughput(served: Served, options: Options) -> Part:
    rows, checks, raw = [], [], {}
    for count in COUNTS:
        texts = prompts(served.assembled.tokenizer, count, PROMPT_LEN)
        requests = [greedy(f"{i}", prompt, NUM_TOKENS) for i, prompt in enumerate(texts)]
        contenders = {str(n): lambda n=n, some=requests: served.rate(some, n) for n in (0, 1, MANY_ADAPTERS)}
        taken = alternate(contenders, options.rounds(5, 1))
        for n, target in ((1, ONE), (MANY_ADAPTERS, MIXED)):
            ratio = median(b / a for a, b in zip(taken["0"], taken[str(n)], strict=True))
            what = f"{count} requests, {'one adapter' if n == 1 else f'{n} adapters'}"
            rows.append((what, f"{median(taken['0']):.0f}", f"{median(taken[str(n)]):.0f}", f"{ratio:.3f}x"))
            checks.append(Check(f"{what} / base, tokens/s", ratio, target, False, "x"))
        raw |= {f"{count} requests, {n} adapters": values for n, values in taken.items()}
    return rows, checks, raw


def speculation(plain: Served, ngram: Served, options: Options) -> Part:
    """Speed-up by ngram on an edit, with an adapter over without one."""
    tokenizer = plain.assembled.tokenizer
    rounds = options.rounds(3, 1)
    files = [edited(tokenizer, file) for file in prompts(tokenizer, rounds + 1, 500)]
    turn: dict[str, int] = {}
    lengths: dict[int, list[float]] = {0: [], 1: []}

    def measure(name: str, served: Served, num_adapters: int) -> float:
        turn[name] = at = turn.get(name, -1) + 1
        [one] = served.under([request(f"{name} {at}", files[at], 0.0, at)], num_adapters)
        decoded = decode(served.assembled.engine, [one])
        if served is ngram:
            lengths[num_adapters].append(decoded.mean_length)
        return decoded.rate

    contenders = {
        f"{who} {n}": lambda who=who, served=served, n=n: measure(f"{who} {n}", served, n)
        for n in (0, 1)
        for who, served in (("plain", plain), ("ngram", ngram))
    }
    taken = alternate(contenders, rounds)
    middle = medians(taken)
    gains = [middle[f"ngram {n}"] / middle[f"plain {n}"] for n in (0, 1)]
    rows = [
        (f"ngram on an edit, {name}: plain, then drafted; {sum(lengths[n]) / len(lengths[n]):.1f} accepted per step",
         f"{middle[f'plain {n}']:.0f}", f"{middle[f'ngram {n}']:.0f}", f"{gains[n]:.2f}x")
        for n, name in ((0, "base"), (1, "one adapter"))
    ]  # fmt: skip
    check = Check("ngram's speed-up with an adapter / without", gains[1] / gains[0], SHARE_OF_GAIN, False, "x")
    return rows, [check], {f"edit, {name}": values for name, values in taken.items()}


def peft(served: Served, path: Path, options: Options) -> Part:
    """One request with the adapter: ours against transformers with PEFT."""
    prompt = prompts(served.assembled.tokenizer, 1, PROMPT_LEN)[0]
    generate = peft_generate(path, prompt)
    one = [greedy("single", prompt, NUM_TOKENS)]
    contenders: dict[str, Callable[[], float]] = {
        "peft": lambda: NUM_TOKENS / seconds_of(generate),
        "ours": lambda: served.rate(one, 1),
    }
    taken = alternate(contenders, options.rounds(3, 1))
    middle = medians(taken)
    ratio = middle["ours"] / middle["peft"]
    row = ("1 request, one adapter: PEFT, then ours", f"{middle['peft']:.0f}", f"{middle['ours']:.0f}", f"{ratio:.1f}x")
    return [row], [], {f"peft, {name}": values for name, values in taken.items()}


def peft_generate(path: Path, prompt: tuple[int, ...]) -> Callable[[], None]:
    transformers: Any = importlib.import_module("transformers")  # untyped, and not installed for users
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    base = transformers.AutoModelForCausalLM.from_pretrained(locate_model(MODEL), dtype=getattr(torch, DTYPE)).eval()
    model: Any = importlib.import_module("peft").PeftModel.from_pretrained(base, str(path))
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def generate() -> None:
        model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=NUM_TOKENS, max_new_tokens=NUM_TOKENS
        )

    return generate


def write_adapter(path: Path, seed: int) -> Path:
    """A random adapter in PEFT's format: small enough that text stays text."""
    config = read_config(locate_model(MODEL))
    generator = torch.Generator().manual_seed(seed)
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    sizes = {
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    tensors = {}
    for layer in range(config.num_layers):
        for name, (outs, ins) in sizes.items():
            full = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{full}.lora_A.weight"] = torch.randn(RANK, ins, generator=generator) * ins**-0.5
            tensors[f"{full}.lora_B.weight"] = torch.randn(outs, RANK, generator=generator) * 0.01
    path.mkdir()
    save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
    fields = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "bias": "none",
        "target_modules": [name.rpartition(".")[2] for name in sizes], "base_model_name_or_path": MODEL,
    }  # fmt: skip
    (path / "adapter_config.json").write_text(json.dumps(fields))
    return path
