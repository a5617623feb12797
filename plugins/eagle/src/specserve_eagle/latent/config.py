"""The numbers of multi-head latent attention, and the same layer as one that the core can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import ModelError

if TYPE_CHECKING:
    from specserve.api.files import RawJson

ARCHITECTURES = ("DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM")
"""Targets whose MTP blocks have it."""
FAMILY = "glm4_moe"
"""Whose layers theirs are, but for attention."""
KEY = "kv_lora_rank"
SIZES = (KEY, "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")


class LatentConfig(msgspec.Struct, frozen=True):
    """Letters: H hidden size, h heads."""

    query_rank: int | None
    """Of the row that queries are made of; None: of the hidden state itself."""
    rank: int
    """Of the row that keys and values are made of."""
    rotated: int
    """Numbers of a query that are rotated; those of keys are the same in all heads."""
    plain: int
    """Numbers of a query and a key that are not."""
    value: int
    """Numbers of a value: at most `head_dim`."""

    @property
    def head_dim(self) -> int:
        """Of queries and keys."""
        return self.rotated + self.plain

    def maps(self, hidden_size: int, num_heads: int) -> dict[str, tuple[int, int]]:
        """[out, in] of a layer's maps."""
        queries = num_heads * self.head_dim
        found = {
            "kv_a_proj": (self.rank + self.rotated, hidden_size),
            "kv_b_proj": (num_heads * (self.plain + self.value), self.rank),
            "o_proj": (hidden_size, num_heads * self.value),
        }
        if self.query_rank is None:
            return found | {"q_proj": (queries, hidden_size)}
        return found | {"q_a_proj": (self.query_rank, hidden_size), "q_b_proj": (queries, self.query_rank)}

    def norms(self) -> dict[str, int]:
        """Their sizes."""
        found = {"kv_a_norm": self.rank}
        return found if self.query_rank is None else found | {"q_a_norm": self.query_rank}


def has_latent_attention(raw: RawJson) -> bool:
    """Of a target whose MTP block is known to have it."""
    return bool(raw.get(KEY)) and bool({*ARCHITECTURES} & {*map(str, raw.get("architectures") or ())})


def latent_config(raw: RawJson, where: str) -> LatentConfig:
    """Raises ModelError."""
    for key in SIZES:
        if type(raw.get(key)) is not int or raw[key] < 1:
            raise ModelError(f"{where}: {key} must be a whole number of at least 1; got {raw.get(key)!r}.")
    rank = raw.get("q_lora_rank")
    if rank is not None and (type(rank) is not int or rank < 1):
        raise ModelError(f"{where}: q_lora_rank must be null or a whole number of at least 1; got {rank!r}.")
    config = LatentConfig(rank, *(raw[key] for key in SIZES))
    if config.rotated % 2 or config.value > config.head_dim:
        raise ModelError(
            f"{where}: multi-head latent attention is computed with an even qk_rope_head_dim and values of at most "
            f"qk_nope_head_dim + qk_rope_head_dim numbers; got {config.rotated}, {config.value} and {config.head_dim}."
        )
    for key, served in (("rope_interleave", True), ("attention_bias", False)):
        if raw.get(key, served) is not served:
            raise ModelError(
                f"{where}: {key} = {raw[key]!r} is not supported in a block with latent attention; {served} is."
            )
    kinds = {str(found.get(key)) for found in ropes(raw) for key in ("type", "rope_type") if found.get(key)}
    if scaled := kinds - {"default"}:
        raise ModelError(
            f"{where}: a rotation of type {', '.join(sorted(scaled))} is not supported in a block with latent "
            "attention, only the default one. Draft with n-gram, or with a stand-alone model."
        )
    return config


def as_plain_layer(raw: RawJson, latent: LatentConfig) -> RawJson:
    """config.json of a layer with as many heads of keys, of the same width, of which as many numbers are rotated."""
    plain = {
        "head_dim": latent.head_dim,
        "num_key_value_heads": raw["num_attention_heads"],
        "partial_rotary_factor": latent.rotated / latent.head_dim,
        "use_qk_norm": False,
    }
    theta = {key: value for found in ropes(raw) for key, value in found.items() if key == "rope_theta"}
    others = {key: value for key, value in raw.items() if key not in (KEY, "rope_parameters", "rope_scaling")}
    return others | theta | plain


def ropes(raw: RawJson) -> list[RawJson]:
    found = (raw.get("rope_parameters"), raw.get("rope_scaling"))
    return [each for each in found if isinstance(each, dict)]
