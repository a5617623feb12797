"""Small random models of transformers' classes: those that are served, and some that are refused with the reason.

Windows are shorter than the prompts of the tests, so that both sides of them are seen.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import transformers

from specserve_workbench.testing.toy_tokenizer import EOS_ID, VOCAB_SIZE, write_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": EOS_ID,
    "eos_token_id": EOS_ID,
}
WINDOW = 40
SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
UNTIED = {"tie_word_embeddings": False}
"""A tied head of random numbers repeats one token."""
CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 8.0}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}

SERVED: dict[str, dict[str, Any]] = {
    "AfmoeForCausalLM": {**SLIDING, **EXPERTS, "num_dense_layers": 1},
    "ApertusForCausalLM": {},
    "ArceeForCausalLM": {},
    "BitNetForCausalLM": {},
    "Cohere2ForCausalLM": SLIDING,
    "CohereForCausalLM": {"logit_scale": 0.5},
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "Ernie4_5ForCausalLM": {},
    "Ernie4_5_MoeForCausalLM": {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48},
    "Exaone4ForCausalLM": SLIDING,
    "FlexOlmoForCausalLM": EXPERTS,
    "GPT2LMHeadModel": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "GPTBigCodeForCausalLM": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "GPTNeoXForCausalLM": {},
    "Gemma2ForCausalLM": {"head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 24, **CAPS, **UNTIED},
    "GemmaForCausalLM": {"head_dim": 16, **UNTIED},
    "Glm4ForCausalLM": {"head_dim": 16},
    "Glm4MoeForCausalLM": {**DEEPSEEK, "num_key_value_heads": 2, "head_dim": 16, "use_qk_norm": True},
    "Glm4MoeLiteForCausalLM": {**DEEPSEEK, "n_group": 1},
    "GptOssForCausalLM": {**SLIDING, **EXPERTS, "head_dim": 16},
    "GraniteMoeForCausalLM": {**EXPERTS, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "HunYuanDenseV1ForCausalLM": {"head_dim": 16},
    "Jais2ForCausalLM": {},
    "MixtralForCausalLM": EXPERTS,
    "ModernBertDecoderForCausalLM": {**SLIDING, "local_attention": 2 * WINDOW},
    "NemotronForCausalLM": {},
    "OPTForCausalLM": {"ffn_dim": 96, "word_embed_proj_dim": 64, **UNTIED},
    "OlmoForCausalLM": {"clip_qkv": 2.0},
    "OlmoeForCausalLM": EXPERTS,
    "PhiForCausalLM": {"partial_rotary_factor": 0.5},
    "PhimoeForCausalLM": EXPERTS,
    "Qwen2MoeForCausalLM": {**EXPERTS, "shared_expert_intermediate_size": 48},
    "SeedOssForCausalLM": {"head_dim": 16},
    "Starcoder2ForCausalLM": {"sliding_window": WINDOW},
}
"""By class, what its configuration has beside the sizes."""

KINDS = (
    "CohereForCausalLM",
    "Exaone4ForCausalLM",
    "GPTNeoXForCausalLM",
    "NemotronForCausalLM",
    "Qwen2MoeForCausalLM",
    "Starcoder2ForCausalLM",
)
"""Layer norms, layers that are the engine's own, one product for queries, keys and values, experts, a window."""

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "BloomForCausalLM": ({}, "does not call the attention interface"),
    "DiffLlamaForCausalLM": ({}, "is computed 2 times in a pass"),
    "Gemma4ForCausalLM": ({}, "reads keys and values of another layer"),
    "Llama4ForCausalLM": ({"head_dim": 16}, "has a mask"),
    "MambaForCausalLM": ({}, "does not call the attention interface"),
    "RecurrentGemmaForCausalLM": ({}, "calls no attention"),
    "RobertaForCausalLM": ({}, "is bidirectional"),
}
"""By class, its configuration and a part of the reason."""


def write_model(path: Path, name: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Path:
    """A directory with config.json, weights and a tokenizer. Weights are large enough that outputs vary."""
    extra = {**SERVED, **{name: given for name, (given, _) in REFUSED.items()}}.get(name, {})
    found = getattr(transformers, name)
    config = found.config_class(**{**SIZES, **extra, **changes})
    torch.manual_seed(seed)
    model = found(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(path)
    write_tokenizer(path)
    (path / "generation_config.json").unlink(missing_ok=True)
    return path


def change(path: Path, **values: Any) -> None:
    """Keys of config.json; None removes one."""
    file = path / "config.json"
    found = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))
