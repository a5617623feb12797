"""The options of `specserve-eagle train` and `eval`, and what is wrong with them before anything is read.

Options that belong to one kind of head are refused for the others, never ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec
import torch

from specserve.api import ConfigError, ModelError
from specserve.api.files import locate_on_disk
from specserve_eagle.checkpoints.hidden_layers import default_layers
from specserve_eagle.training.block_options import (
    BLOCK_HEADS,
    block_identity,
    block_shape,
    check_block_head,
    check_block_options,
)
from specserve_eagle.training.plain_layers import check_adaptable
from specserve_eagle.training.standalone import DEFAULT_LAYERS, standalone_shape
from specserve_eagle.training.uno_options import adapter_identity, adapter_shape, check_adapter

if TYPE_CHECKING:
    from specserve.api.models import ModelConfig
    from specserve_eagle.training.train_options import TrainOptions

Kind: TypeAlias = Literal["eagle3", "eagle", "mtp", "dflash", "dspark", "standalone", "uno"]
KINDS: tuple[str, ...] = get_args(Kind)
DEVICES = ("cpu", "cuda")
MIN_UNROLL, MAX_UNROLL = 3, 7
MAX_EVAL_STEPS = 16
DEFAULT_DRAFT_VOCAB = 32000
BY_BLOCKS = (*BLOCK_HEADS, "uno")
"""What drafts all its tokens at once, and learns from some places of a window."""
ONLY_FOR: dict[str, tuple[str, ...]] = {
    "draft_vocab": ("eagle3", "dspark"),
    "layers": ("standalone", *BLOCK_HEADS),
    "heads": BLOCK_HEADS,
    "kv_heads": BLOCK_HEADS,
    "block_size": BY_BLOCKS,
    "anchors": BY_BLOCKS,
    "mask_token": BY_BLOCKS,
    "markov": ("dspark",),
    "markov_rank": ("dspark",),
    "rank": ("uno",),
    "intermediate_size": tuple(kind for kind in KINDS if kind != "uno"),
    "compile": tuple(kind for kind in KINDS if kind != "uno"),
    "hidden_size": ("standalone",),
    "untied": ("standalone",),
}
AT_LEAST_ONE = (
    *("length", "batch", "max_steps", "draft_vocab", "intermediate_size", "layers", "hidden_size", "threads"),
    *("anchors", "reuse", "heads", "kv_heads"),
)


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, and on which text."""

    target: str
    head: str
    """As `target`, a directory, a known name or a hub id."""
    data: tuple[str, ...]
    temperature: float = 0.0
    steps: int = 3
    length: int = 512
    batch: int = 8
    windows: int = 64
    """At most."""
    device: str = "cpu"
    threads: int | None = None


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check_options(options: TrainOptions) -> None:
    """ConfigError for a value that no target allows."""
    if options.head not in KINDS:
        raise ConfigError(f"--head {options.head}: there is no such head. Allowed: {', '.join(KINDS)}.")
    for name, kinds in ONLY_FOR.items():
        value = getattr(options, name)
        if value is not None and value is not False and options.head not in kinds:
            raise ConfigError(f"{flag(name)} belongs to --head {', '.join(kinds)}; got --head {options.head}. Omit it.")
    check_at_least_one(options, AT_LEAST_ONE)
    check_block_options(options)
    if not MIN_UNROLL <= options.unroll <= MAX_UNROLL:
        raise ConfigError(f"--unroll must be between {MIN_UNROLL} and {MAX_UNROLL} steps; got {options.unroll}.")
    if options.minutes is None and options.max_steps is None:
        raise ConfigError("a budget is missing: give --minutes, --max-steps or both; the first to be spent counts.")
    if options.minutes is not None and not 0 < options.minutes < float("inf"):
        raise ConfigError(f"--minutes must be a positive number; got {options.minutes}.")
    check_device(options.device)


def check_at_least_one(options: TrainOptions | EvalOptions, names: tuple[str, ...]) -> None:
    for name in names:
        if (value := getattr(options, name)) is not None and value < 1:
            raise ConfigError(f"{flag(name)} must be at least 1; got {value}.")


def check_device(device: str) -> None:
    if device not in DEVICES:
        raise ConfigError(f"--device must be one of {', '.join(DEVICES)}; got {device}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch finds no CUDA device here. Use --device cpu, or a CUDA build of torch.")


def check_against(options: TrainOptions, target: ModelConfig, library: str | None = None) -> None:
    """ConfigError or ModelError for what this target does not allow. Its weights are not needed for that. `library`:
    what computes the target, if the engine does not."""
    drafted, option = options.unroll, "--unroll"
    if options.head == "uno":
        check_adaptable(target, library)
        check_adapter(options, target)
        drafted, option = adapter_shape(options, target).num_proposed, "the draft tokens of a block"
    if options.head in BLOCK_HEADS:
        check_block_head(options, target)
        drafted, option = block_shape(options, target).num_proposed, "the draft tokens of a block"
    shortest, longest = drafted + 2, target.max_position_embeddings
    if not shortest <= options.length <= longest:
        raise ConfigError(
            f"--length must be between {shortest} ({option} and two tokens) and {longest} (what the target supports); "
            f"got {options.length}."
        )
    if options.head == "standalone":
        standalone_shape(target, options.hidden_size, options.intermediate_size)
    if options.head == "eagle3":
        check_eagle3(options, target)
    check_draft_vocab(options, target)


def check_eagle3(options: TrainOptions, target: ModelConfig) -> None:
    low, middle, high = default_layers(target.num_layers)
    if not low < middle < high:
        raise ConfigError(
            f"--head eagle3 reads three different layers of its target, numbers 2, L/2 and L-3, and so needs at least "
            f"7 layers; the target has {target.num_layers}. Use --head eagle or mtp."
        )


def check_draft_vocab(options: TrainOptions, target: ModelConfig) -> None:
    if (options.draft_vocab or 1) > target.vocab_size:
        raise ConfigError(
            f"--draft-vocab must be at most the target's vocabulary, {target.vocab_size} tokens; "
            f"got {options.draft_vocab}."
        )


def head_identity(options: TrainOptions, target: ModelConfig) -> dict[str, object]:
    """What a checkpoint can only be resumed with: options by name, defaults resolved, and the target's numbers."""
    identity: dict[str, object] = {"head": options.head}
    if options.head == "eagle3":
        identity["draft_vocab"] = min(options.draft_vocab or DEFAULT_DRAFT_VOCAB, target.vocab_size)
    if options.head == "standalone":
        shape = standalone_shape(target, options.hidden_size, options.intermediate_size)
        identity |= {"layers": options.layers or DEFAULT_LAYERS, "hidden_size": shape.hidden_size}
        identity |= {"untied": options.untied, "intermediate_size": shape.intermediate_size}
    elif options.head == "uno":
        identity |= adapter_identity(options, target)
    else:
        identity["intermediate_size"] = options.intermediate_size or target.intermediate_size
    if options.head in BLOCK_HEADS:
        identity |= block_identity(options, target)
    numbers = ("family", "vocab_size", "hidden_size", "num_layers")
    return identity | {"target": {name: getattr(target, name) for name in numbers}}


def check_eval_options(options: EvalOptions) -> None:
    """ConfigError for a value that no target allows."""
    check_at_least_one(options, ("length", "batch", "windows", "threads"))
    if not 1 <= options.steps <= MAX_EVAL_STEPS:
        raise ConfigError(f"--steps must be between 1 and {MAX_EVAL_STEPS}; got {options.steps}.")
    if not 0.0 <= options.temperature <= 10.0:
        raise ConfigError(f"--temperature must be between 0 and 10; got {options.temperature}.")
    try:
        locate_on_disk(options.head)
    except ModelError as error:
        raise ModelError(f"--head: {error}") from error
    check_device(options.device)
