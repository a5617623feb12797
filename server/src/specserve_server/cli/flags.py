"""Flags that `serve` and `generate` share: one per field of EngineConfig, and those of tracing and plugins."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specserve.config import DEVICES, DTYPES, GRAPHS, EngineConfig
from specserve.tracing import FORMS, TOPICS
from specserve_checks.json_syntax import explain_json_error
from specserve_server.cli.flag_groups import FlagGroups
from specserve_server.cli.option_help import OptionHelp, field_help
from specserve_server.cli.plugin_flags import add_shorthand_flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup
    from collections.abc import Callable

PLUGIN_FIELDS = ("plugins", "no_plugins", "plugin_options", "default_plugins", "allow_undeclared")
"""Fields of EngineConfig that have flags of other names."""
MODEL_FIELDS = ("max_model_len", "tokenizer", "generation_config")
"""What --help shows as the model's."""
LIMIT_FIELDS = ("max_waiting", "max_logprobs")
ENGINE_FIELDS = tuple(name for name in EngineConfig.__struct_fields__ if name not in PLUGIN_FIELDS)
SWITCHES = ("prefix_cache", "chunked_prefill")
OPT_INS = ("graph_warm_up",)
COUNTS = (
    *("threads", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "max_waiting", "stream_interval"),
    "block_size",
    *("max_draft_tokens", "draft_tokens", "max_draft_batch"),
    *("draft_fault_limit", "fault_limit", "max_logprobs", "seed"),
)
CHOICES = {"dtype": DTYPES, "device": DEVICES, "graphs": GRAPHS}
HELP = {
    "device": "where the model runs",
    "dtype": "data type of the weights and of the computation; auto: the checkpoint's, where the device supports it",
    "threads": "CPU threads",
    "max_num_seqs": "maximum number of requests that run at once",
    "max_num_batched_tokens": "maximum number of tokens per step",
    "max_model_len": "context length in tokens",
    "max_waiting": "maximum number of waiting requests; more are answered 429",
    "stream_interval": "tokens of an event of a stream, behind the first; fewer events cost less",
    "block_size": "tokens per KV block",
    "kv_memory": "bytes for the KV cache, such as 512M or 2G",
    "state_memory": "bytes for the states of recurrent layers, such as 512M",
    "max_draft_tokens": "maximum number of draft tokens per request and step",
    "draft_tokens": "fixed number of draft tokens per request and step",
    "max_draft_batch": "running requests up to which such a number is drafted for each; with more, for none",
    "attention": "attention backend, or auto",
    "graphs": "which steps are recorded and replayed; auto: full on CUDA, none on CPUs",
    "graph_buckets": "numbers of rows that recorded steps are padded to, such as 1,2,4,8",
    "graph_memory": "bytes for graphs and their buffers, such as 512M",
    "graph_warm_up": "record graphs at start-up instead of when a step first needs them",
    "draft_fault_limit": "consecutive faulty steps after which a drafter is switched off",
    "fault_limit": "consecutive faulty calls after which another part of a plugin is switched off",
    "tokenizer": "directory of another tokenizer than the model's",
    "generation_config": "defaults of temperature, top_k, top_p, min_p and repetition_penalty: auto (the model's), "
    'none, or a JSON object such as {"temperature": 0.6}, over the model\'s',
    "seed": "makes requests without a seed of their own reproducible, in order of arrival",
    "max_logprobs": "the largest logprobs of a request",
    "prefix_cache": "reuse the KV blocks of equal prefixes",
    "chunked_prefill": "split long prompts over several steps",
}


def add_engine_flags(parser: ArgumentParser) -> None:
    """The model is a positional argument of the command."""
    add_grouped_engine_flags(FlagGroups(parser))


def add_grouped_engine_flags(groups: FlagGroups) -> None:
    config = OptionHelp("tables [engine], [server], [plugins.NAME]", default="none")
    groups["engine"].add_argument("--config", type=Path, metavar="FILE.toml", help=config)
    for name in ENGINE_FIELDS:
        group = groups["model" if name in MODEL_FIELDS else "limits" if name in LIMIT_FIELDS else "engine"]
        if name in SWITCHES:
            add_switch(group, f"--no-{name.replace('_', '-')}", f"do not {HELP[name]}", dest=name, action="store_false")
        elif name in OPT_INS:
            add_switch(group, f"--{name.replace('_', '-')}", HELP[name], dest=name)
        elif name != "model":
            add_flag(group, name)
    add_trace_flags(groups["logging"])
    add_plugin_flags(groups["plugins"])


def add_flag(group: _ArgumentGroup, name: str) -> None:
    group.add_argument(
        f"--{name.replace('_', '-')}",
        dest=name,
        type=PARSED.get(name, int if name in COUNTS else str),
        choices=CHOICES.get(name),
        help=field_help(EngineConfig, name, HELP[name], has_choices=name in CHOICES),
        metavar=METAVARS.get(name),
    )


def add_switch(group: _ArgumentGroup, flag: str, what: str, *, dest: str, action: str = "store_true") -> None:
    group.add_argument(flag, dest=dest, action=action, default=None, help=OptionHelp(what, default="off"))


def add_trace_flags(group: _ArgumentGroup) -> None:
    topics = OptionHelp("print every event of these on standard error", default="none", allowed=", ".join(TOPICS))
    group.add_argument("--trace", metavar="TOPIC,...", help=topics)
    form = OptionHelp("the form of these lines", default="as the log's", allowed=", ".join(FORMS), has_choices=True)
    group.add_argument("--trace-format", choices=FORMS, help=form)


def add_plugin_flags(group: _ArgumentGroup) -> None:
    for flag, metavar, what, default in (
        ("--plugin", "NAME", "enable an installed plugin; may be repeated", "those that are on by default"),
        ("--no-plugin", "NAME", "disable a plugin; may be repeated", "none"),
        ("--set", "NAME.KEY=VALUE", "an option of a plugin; may be repeated", "those of the plugin"),
    ):
        group.add_argument(flag, action="append", default=[], metavar=metavar, help=OptionHelp(what, default=default))
    add_shorthand_flags(group)
    for flag, what in (
        ("--no-default-plugins", "enable only what --plugin names"),
        ("--allow-undeclared", "start with pairs of plugins that nobody declared compatible"),
    ):
        group.add_argument(flag, action="store_true", help=OptionHelp(what, default="off"))


def defaults(text: str) -> str | dict[str, float]:
    """`auto`, `none` or a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, float]) if text.startswith("{") else text
    except msgspec.ValidationError:
        why = "its values must be numbers"
    except msgspec.DecodeError as error:
        why = explain_json_error(text.encode(), error)
    raise ArgumentTypeError(f'must be auto, none or a JSON object such as {{"temperature": 0.6}}: {why}; got {text}')


def buckets(text: str) -> tuple[int, ...]:
    """`"1,2,4"`."""
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"must be ascending integers with commas, such as 1,2,4,8; got {text!r}") from None


PARSED: dict[str, Callable[[str], object]] = {"graph_buckets": buckets, "generation_config": defaults}
METAVARS = {
    "kv_memory": "BYTES",
    "state_memory": "BYTES",
    "graph_memory": "BYTES",
    "attention": "NAME",
    **dict.fromkeys(COUNTS, "N"),
    "graph_buckets": "N,N,...",
    "tokenizer": "DIR",
    "generation_config": "DEFAULTS",
}
