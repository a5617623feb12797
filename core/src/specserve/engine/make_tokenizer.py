"""The tokenizer of an engine: the model's, with what the configuration puts in place of its parts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from specserve.engine.admission import NO_LIMITS, check_sampling
from specserve.errors import ConfigError, RequestError
from specserve.model_files import read_optional_json
from specserve.models.locate import locate_tokenizer
from specserve.text.sampling_defaults import unused_defaults
from specserve.text.tokenizer import HfTokenizer
from specserve.types import SamplingParams
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from specserve.config import EngineConfig

logger = logging.getLogger(__name__)


def make_tokenizer(config: EngineConfig, model: Path) -> HfTokenizer:
    """Raises ConfigError and its kind."""
    if not isinstance(config.generation_config, str):
        check_sampling_defaults(config.generation_config)
    tokenizer = HfTokenizer.from_dir(locate_tokenizer(config), model=model, defaults=config.generation_config)
    if config.generation_config != "none":
        file = model / "generation_config.json"
        check_sampling_defaults(tokenizer.sampling_defaults, str(file))
        if unused := unused_defaults(read_optional_json(file)):
            logger.warning("%s: %s: not followed here; requests may send what they need", file, ", ".join(unused)[:500])
    return tokenizer


def check_sampling_defaults(defaults: Mapping[str, float], where: str = "generation_config") -> None:
    """Else every request without these parameters would have the error."""
    params = convert(defaults, SamplingParams, lambda wrong: ConfigError(f"{where}: {wrong}"))
    try:
        check_sampling(params, NO_LIMITS)
    except RequestError as error:
        raise ConfigError(f"{where}: {error} Correct it, or start with --generation-config none.") from None


def check_vocabulary(config: EngineConfig, tokenizer: HfTokenizer, vocab_size: int) -> None:
    """A model's own tokenizer may have tokens that the model lacks, which are rare ones; another's would be wrong."""
    if config.tokenizer is not None and tokenizer.vocab_size > vocab_size:
        raise ConfigError(
            f"tokenizer: {config.tokenizer} has {tokenizer.vocab_size} tokens, and the model {vocab_size}. "
            "Pass the tokenizer that the model was trained with."
        )
