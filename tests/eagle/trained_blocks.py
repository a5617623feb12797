"""Trained block heads of the sizes that `toy_block_heads` has a plain implementation for, written and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file
from toy_block_heads import BLOCK, LAYERS, MASK, RANK

from specserve_eagle.training.export import export
from specserve_eagle.training.loop import Trainer
from specserve_eagle.training.run import loss_function, make_module
from specserve_eagle.training.train_options import TrainOptions

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from specserve_eagle.training.block_heads import BlockHeadModule
    from specserve_eagle.training.target import Target

LENGTH = 24


class TrainedBlocks(NamedTuple):
    module: BlockHeadModule
    """As it is written, in bfloat16."""
    path: Path
    tensors: dict[str, Tensor]
    """By the names of the file."""


def texts(num_windows: int = 4, seed: int = 3) -> Tensor:
    """[windows, LENGTH] of tokens other than the mask token."""
    return torch.randint(0, MASK, (num_windows, LENGTH), generator=torch.Generator().manual_seed(seed))


def block_options(head: str, out: Path, **given: Any) -> TrainOptions:
    sizes: dict[str, Any] = {"block_size": BLOCK, "layers": LAYERS, "mask_token": MASK, "anchors": 8}
    sizes |= {"markov_rank": RANK} if head == "dspark" else {}
    common: dict[str, Any] = {"target": ".", "data": (), "length": LENGTH, "batch": 4, "max_steps": 9}
    return TrainOptions(head=head, out=out, **(common | sizes | given))


def train_blocks(head: str, target: Target, out: Path, steps: int = 60, **given: Any) -> TrainedBlocks:
    """A head after some steps on `texts()`: it is not what it began as, and its tables are not zero."""
    torch.manual_seed(0)
    options = block_options(head, out, **given)
    module = make_module(options, target, texts().flatten())
    trainer = Trainer(
        module, loss_function(options, target, module), out, device="cpu", on_step=lambda *_: None, save=lambda _: None
    )
    for _ in range(steps):
        trainer.step(texts(), 1.0)
    out.mkdir(exist_ok=True)
    export(module, target.files, out)
    tensors = load_file(out / "model.safetensors")
    floats = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return TrainedBlocks(module.to(torch.bfloat16).float().eval(), out, floats)
