"""The options of draft adapters: what is wrong with them, and the numbers of the adapter that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError
from specserve_eagle.training.uno_module import UnoShape

if TYPE_CHECKING:
    from specserve.api.models import ModelConfig
    from specserve_eagle.training.train_options import TrainOptions

DEFAULT_BLOCK, DEFAULT_RANK = 8, 64
MAX_RANK = 256
"""What the plugin uno serves."""
LEAST_END = 2


def check_adapter(options: TrainOptions, target: ModelConfig) -> None:
    """ConfigError for what this target does not allow."""
    if target.experts is not None:
        raise ConfigError(
            f"--head uno adapts dense layers, and those of family {target.family} have experts. Train an EAGLE-3 or a "
            "block head: --head eagle3, dflash or dspark."
        )
    if options.rank is not None and not 1 <= options.rank <= MAX_RANK:
        raise ConfigError(f"--rank must be between 1 and {MAX_RANK}; got {options.rank}.")
    if options.mask_token is not None and not LEAST_END <= options.mask_token <= target.vocab_size:
        raise ConfigError(
            f"--mask-token must be between {LEAST_END} and {target.vocab_size}, the tokens of the target: random "
            f"tokens are below it; got {options.mask_token}."
        )


def adapter_shape(options: TrainOptions, target: ModelConfig) -> UnoShape:
    """The numbers of the adapter that a run trains."""
    return UnoShape(
        block_size=options.block_size or DEFAULT_BLOCK,
        mask_token=options.mask_token or target.vocab_size,
        rank=options.rank or DEFAULT_RANK,
    )


def adapter_identity(options: TrainOptions, target: ModelConfig) -> dict[str, object]:
    """What a checkpoint can only be resumed with, beside what every head has."""
    return dict(adapter_shape(options, target)._asdict())
