"""The paged KV cache as attention backends see it, and which backend can serve what."""

from specserve.attention.fitting import best_fit, misfits, none_fits, unknown
from specserve.kv.cache import KeysValues, KVCache, Mover, move_tokens
from specserve.kv.slots import num_blocks_for, slot_of, slots_of

__all__ = [
    "KVCache",
    "KeysValues",
    "Mover",
    "best_fit",
    "misfits",
    "move_tokens",
    "none_fits",
    "num_blocks_for",
    "slot_of",
    "slots_of",
    "unknown",
]
