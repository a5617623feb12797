"""What an evaluation reads: target, draft model and windows of held-out text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import ConfigError
from specserve.api.files import HfTokenizer, locate_model
from specserve_eagle.training.options import check_eval_options
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.target import Target
from specserve_eagle.training.text import all_windows, read_texts, spread, token_stream

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_eagle.training.export import Module
    from specserve_eagle.training.options import EvalOptions


class EvaluationInputs(NamedTuple):
    module: Module
    target: Target
    windows: Tensor
    """[windows, length]."""


def evaluation_inputs(options: EvalOptions) -> EvaluationInputs:
    check_eval_options(options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    path = locate_model(options.target)
    tokenizer = HfTokenizer.from_dir(path)
    texts = read_texts(options.data)
    target = Target.load(path, options.device)
    shortest, longest = options.steps + 2, target.model.max_model_len
    if not shortest <= options.length <= longest:
        raise ConfigError(
            f"--length must be between {shortest} (--steps and two tokens) and {longest} (what the target supports); "
            f"got {options.length}."
        )
    windows = all_windows(token_stream(texts, tokenizer, target.config.vocab_size), options.length, "--data")
    return EvaluationInputs(reopen(locate_model(options.head), target), target, spread(windows, options.windows))
