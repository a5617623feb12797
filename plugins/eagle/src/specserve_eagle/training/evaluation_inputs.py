"""What an evaluation reads: target, draft model and windows of held-out text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import ConfigError
from specserve.api.files import HfTokenizer, locate_model
from specserve_eagle.checkpoints.detect import refuse_assistant
from specserve_eagle.training.block_heads import BlockHeadModule
from specserve_eagle.training.options import check_eval_options
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.target import Target
from specserve_eagle.training.text import all_windows, read_texts, spread, token_stream
from specserve_eagle.training.uno_module import DraftAdapterModule

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
    head = locate_model(options.head)
    refuse_assistant(head)  # first: no target of an assistant is loaded here
    path = locate_model(options.target)
    tokenizer = HfTokenizer.from_dir(path)
    texts = read_texts(options.data)
    target = Target.load(path, options.device)
    stream = token_stream(texts, tokenizer, target.config.vocab_size)
    module = reopen(head, target)
    drafted, longest = drafted_tokens(options, module), target.model.max_model_len
    if not drafted + 2 <= options.length <= longest:
        raise ConfigError(
            f"--length must be between {drafted + 2} (the draft's tokens and two) and {longest} (what the target "
            f"supports); got {options.length}."
        )
    windows = all_windows(stream, options.length, "--data")
    return EvaluationInputs(module, target, spread(windows, options.windows))


def drafted_tokens(options: EvalOptions, module: Module) -> int:
    """Of a draft: those that are measured, or a whole block. ConfigError where a block has fewer."""
    if not isinstance(module, BlockHeadModule | DraftAdapterModule):
        return options.steps
    if options.steps > module.shape.num_proposed:
        raise ConfigError(
            f"--steps must be at most {module.shape.num_proposed}, the draft tokens of the head's block; got "
            f"{options.steps}."
        )
    return module.shape.num_proposed
