"""Flags that `serve` and `generate` share: one per field of EngineConfig, and those of tracing and plugins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specserve.cli.flag_groups import FlagGroups
from specserve.config import DEVICES, DTYPES, GRAPHS, EngineConfig
from specserve.limits import MAX_LOGPROBS
from specserve.tracing import FORMS, TOPICS

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup
    from collections.abc import Callable

PLUGIN_FIELDS = ("plugins", "no_plugins", "plugin_options", "default_plugins", "allow_undeclared")
"""Fields of EngineConfig that have flags of other names."""
MODEL_FIELDS = ("max_model_len", "tokenizer", "chat_template", "generation_config")
"""What --help shows as the model's."""
LIMIT_FIELDS = ("max_waiting", "max_logprobs")
ENGINE_FIELDS = tuple(name for name in EngineConfig.__struct_fields__ if name not in PLUGIN_FIELDS)
SWITCHES = ("prefix_cache", "chunked_prefill")
OPT_INS = ("graph_warm_up",)
CHOICES = {"dtype": DTYPES, "device": DEVICES, "graphs": GRAPHS}
HELP = {
    "device": "where the model runs; default: cpu",
    "dtype": "data type of the weights and of the computation; auto: the checkpoint's, where the device supports it",
    "threads": "CPU threads; default: the cores that this process may use",
    "max_num_seqs": "maximum number of requests that run at once",
    "max_num_batched_tokens": "maximum number of tokens per step",
    "max_model_len": "context length in tokens; default: the model's own, at most 32768",
    "max_waiting": "maximum number of waiting requests; more are answered 429",
    "block_size": "tokens per KV block",
    "kv_memory": "bytes for the KV cache, such as 512M or 2G",
    "max_draft_tokens": "maximum number of draft tokens per request and step",
    "attention": "attention backend, or auto",
    "graphs": "which steps are recorded and replayed; auto: full on CUDA, none on CPUs",
    "graph_buckets": "numbers of rows that recorded steps are padded to, such as 1,2,4,8",
    "graph_memory": "bytes for graphs and their buffers, such as 512M; default: a tenth of free memory",
    "graph_warm_up": "record graphs at start-up instead of when a step first needs them",
    "draft_fault_limit": "consecutive faulty steps after which a drafter is switched off",
    "fault_limit": "consecutive faulty calls after which another part of a plugin is switched off",
    "tokenizer": "directory of another tokenizer than the model's",
    "chat_template": "file of another chat template than the tokenizer's",
    "generation_config": "defaults of temperature, top_k, top_p, min_p and repetition_penalty: auto (the model's), "
    'none, or a JSON object such as {"temperature": 0.6}, over the model\'s',
    "seed": "makes requests without a seed of their own reproducible, in order of arrival",
    "max_logprobs": f"the largest logprobs of a request; default: {MAX_LOGPROBS}",
    "prefix_cache": "reuse the KV blocks of equal prefixes",
    "chunked_prefill": "split long prompts over several steps",
}


def add_engine_flags(parser: ArgumentParser) -> None:
    """The model is a positional argument of the command."""
    add_grouped_engine_flags(FlagGroups(parser))


def add_grouped_engine_flags(groups: FlagGroups) -> None:
    groups["engine"].add_argument(
        "--config", type=Path, metavar="FILE.toml", help="tables [engine], [server], [plugins.NAME]"
    )
    for name in ENGINE_FIELDS:
        group = groups["model" if name in MODEL_FIELDS else "limits" if name in LIMIT_FIELDS else "engine"]
        if name in SWITCHES:
            group.add_argument(f"--no-{name.replace('_', '-')}", dest=name, action="store_false", default=None,
                               help=f"do not {HELP[name]}")  # fmt: skip
        elif name != "model":
            add_flag(group, name)
    logging = groups["logging"]
    logging.add_argument(
        "--trace", metavar="TOPIC,...", help=f"print every event of {' or '.join(TOPICS)} on standard error"
    )
    logging.add_argument("--trace-format", choices=FORMS, default="text", help="default: text")
    plugins = groups["plugins"]
    plugins.add_argument("--plugin", action="append", default=[], metavar="NAME", help="enable an installed plugin")
    plugins.add_argument("--no-plugin", action="append", default=[], metavar="NAME", help="disable a plugin")
    plugins.add_argument("--no-default-plugins", action="store_true", help="enable only what --plugin names")
    plugins.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help="an option of a plugin")
    plugins.add_argument(
        "--allow-undeclared", action="store_true", help="start with pairs of plugins that nobody declared compatible"
    )


def add_flag(group: _ArgumentGroup, name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    if name in OPT_INS:
        group.add_argument(flag, dest=name, action="store_true", default=None, help=HELP[name])
        return
    is_int = isinstance(getattr(EngineConfig(), name), int) or name in ("threads", "max_model_len", "seed")
    parse = PARSED.get(name, int if is_int else str)
    metavar = METAVARS.get(name)
    group.add_argument(flag, dest=name, type=parse, choices=CHOICES.get(name), help=HELP.get(name), metavar=metavar)


def defaults(text: str) -> str | dict[str, float]:
    """`auto`, `none` or a JSON object. argparse names this function in its error."""
    return msgspec.json.decode(text, type=dict[str, float]) if text.startswith("{") else text


def buckets(text: str) -> tuple[int, ...]:
    """`"1,2,4"`. argparse names this function in its error."""
    return tuple(int(number) for number in text.split(","))


PARSED: dict[str, Callable[[str], object]] = {"graph_buckets": buckets, "generation_config": defaults}
METAVARS = {
    "graph_buckets": "N,N,...",
    "tokenizer": "DIR",
    "chat_template": "FILE",
    "generation_config": "DEFAULTS",
    "max_logprobs": "N",
    "seed": "N",
}
