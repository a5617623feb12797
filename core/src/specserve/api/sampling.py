"""What samplers and verifiers share, so that each gives the tokens and draft tokens of the engine's own."""

from specserve.engine.stopping import find_stop
from specserve.sampling.choosing import chain_of, choose, first_of_each
from specserve.sampling.drafts import draft_tokens, in_target_vocabulary
from specserve.sampling.edits import checked_bits, checked_floats, checked_ids
from specserve.sampling.noise import W_MAX, signed
from specserve.sampling.processors import EditingState
from specserve.sampling.sampler import TorchSampler
from specserve.sampling.scores import GREEDY_BELOW, NO_TOKEN, each_processor, has_token, no_token_left, processed
from specserve.sampling.seeds import GAMMA, MASK, MULTIPLIERS, row_key

__all__ = [
    "GAMMA",
    "GREEDY_BELOW",
    "MASK",
    "MULTIPLIERS",
    "NO_TOKEN",
    "W_MAX",
    "EditingState",
    "TorchSampler",
    "chain_of",
    "checked_bits",
    "checked_floats",
    "checked_ids",
    "choose",
    "draft_tokens",
    "each_processor",
    "find_stop",
    "first_of_each",
    "has_token",
    "in_target_vocabulary",
    "no_token_left",
    "processed",
    "row_key",
    "signed",
]
