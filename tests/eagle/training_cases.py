"""Tiny targets, text and runs for the tests of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve_eagle.training.loop import Trainer
from specserve_eagle.training.run import loss_function, make_module
from specserve_eagle.training.text import Windows
from specserve_eagle.training.train_options import TrainOptions
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve_eagle.training.export import Module
    from specserve_eagle.training.loop import Progress
    from specserve_eagle.training.target import Target

KINDS = ("eagle3", "eagle", "mtp", "dflash", "dspark", "standalone", "uno")
BLOCKS = {
    "uno": {"block_size": 4, "rank": 4},
    "dflash": {"block_size": 4},
    "dspark": {"block_size": 3, "markov_rank": 8},
}
LAYERS, VOCAB = 8, 320
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8}
TEXT = "def add(a, b):\n    return a + b\n\n\nfor i in range(10):\n    print(add(i, i))\n"


def write_target(path: Path, **overrides: Any) -> Path:
    return write_checkpoint(path, **({"num_hidden_layers": LAYERS} | SIZES | overrides))


def options(head: str, target: Path, out: Path, **given: Any) -> TrainOptions:
    small: dict[str, Any] = {"length": 24, "batch": 4, "max_steps": 4, "unroll": 3, "threads": 1, "data": ()}
    small |= {"draft_vocab": 100} if head == "eagle3" else BLOCKS.get(head, {})
    return TrainOptions(head=head, target=str(target), out=out, **(small | given))


def stream(num_tokens: int = 600) -> torch.Tensor:
    """Tokens of the lower half of the vocabulary, in no order."""
    return torch.randint(0, VOCAB // 2, (num_tokens,), generator=torch.Generator().manual_seed(3))


def make_head(head: str, target: Target, **given: Any) -> Module:
    torch.manual_seed(0)
    return make_module(options(head, target=".", out=".", **given), target, stream())


def make_trainer(
    head: str,
    target: Target,
    folder: Path,
    on_step: Callable[[Progress, float], object] = lambda *_: None,
    **given: Any,
) -> tuple[Trainer, Windows]:
    module = make_head(head, target, **given)
    loss_of = loss_function(options(head, folder, folder, **given), target, module)
    trainer = Trainer(module, loss_of, folder, device="cpu", on_step=on_step, save=lambda _: None)
    return trainer, Windows(stream(), length=24, batch=4, seed=0)
