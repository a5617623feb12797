"""Models whose logits are compared with those of transformers: keys of config.json by family and name."""

from __future__ import annotations

from specserve_workbench.testing.toy import FAMILIES

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
PROPORTIONAL, SIX_LAYERS = {"rope_type": "proportional"}, {"num_hidden_layers": 6, "sliding_window": 16}
FULL_FIRST = ["full_attention", "sliding_attention"]
FOUR = {"num_hidden_layers": 4}
FOUR_LAYERS = {**FOUR, "layer_types": ["conv", "full_attention", "conv", "full_attention"]}
CASES = {
    "llama": {},
    "llama-one-kv-head": {"num_key_value_heads": 1},
    "llama-without-gqa": {"num_key_value_heads": None},
    "llama-head-dim-from-hidden": {"head_dim": None, "hidden_size": 192},
    "llama-wide-heads": {"head_dim": 64},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama-llama3": {"rope_scaling": LLAMA3},
    "llama-new-spelling": {"rope_theta": None, "rope_parameters": LLAMA3 | {"rope_theta": 5000.0}},
    "llama-yarn": {"rope_scaling": YARN},
    "mistral": {},
    "mistral-without-window": {"sliding_window": None},
    "mistral-window": {"sliding_window": 16},
    "qwen2": {"rope_theta": 1e6},
    "qwen2-tied": {"tie_word_embeddings": True},
    "qwen2-window-unused": {"sliding_window": 16, "use_sliding_window": False},
    "qwen2-window": {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
    "qwen2-yarn": {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.4}},
    "qwen3": {"rms_norm_eps": 1e-6},
    "qwen3-biases-tied": {"attention_bias": True, "tie_word_embeddings": True, "head_dim": 64},
    "qwen3-layer-types": {
        "sliding_window": 16,
        "use_sliding_window": True,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
CASES |= {
    "gemma2": {},
    "gemma2-wide-heads": {"head_dim": 64, "num_key_value_heads": 1, "attention_bias": True},
    "gemma2-caps-of-the-files": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 16},
    "gemma2-uncapped": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "layer_types": None},
    "gemma2-scaled": {"rope_scaling": YARN, "tie_word_embeddings": False},
    "gemma3_text": {},
    "gemma3_text-wide-heads": {"head_dim": 64, "num_key_value_heads": 1, "final_logit_softcapping": 3.0},
    "gemma3_text-untied": {"tie_word_embeddings": False, "sliding_window": 7, "rms_norm_eps": 1e-6},
    "gemma3_text-by-pattern": {"layer_types": None, "sliding_window_pattern": 2, "num_hidden_layers": 4},
    "gemma3_text-scaled": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 5000.0},
    "gemma3_text-new-spelling": {
        "rope_theta": None,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "granite": {},
    "granite-biases-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "ministral": {},
    "ministral-one-window": {"layer_types": None, "sliding_window": 16},
    "ministral3": {},
    "ministral3-window": {"sliding_window": 16, "tie_word_embeddings": True},
    "ministral3-as-shipped": {
        "head_dim": 64,
        "rope_parameters": {
            "rope_type": "yarn",
            "type": "yarn",
            "rope_theta": 1e6,
            "factor": 16.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 32,
            "max_position_embeddings": 512,
        },
    },
    "olmo2": {},
    "olmo2-one-kv-head": {"num_key_value_heads": 1, "attention_bias": True},
    "olmo3": {},
    "olmo3-scaled": {"rope_scaling": YARN | {"rope_type": "yarn"}, "sliding_window": 16},
    "olmo3-by-default": {"layer_types": None, "num_hidden_layers": 4},
    "phi3": {},
    "phi3-window": {"sliding_window": 24, "num_key_value_heads": 4},
    "phi3-part-tied": {"partial_rotary_factor": 0.5, "tie_word_embeddings": True},
    "smollm3": {},
    "smollm3-by-interval": {"no_rope_layers": None, "no_rope_layer_interval": 2, "num_hidden_layers": 4},
    "smollm3-window": {"use_sliding_window": True, "sliding_window": 16, "attention_bias": True},
}
CASES |= {
    "gpt_oss": {"attention_bias": True},
    "gpt_oss-without-biases-tied": {"attention_bias": False, "tie_word_embeddings": True, "swiglu_limit": 1.0},
    "gpt_oss-by-default": {"rope_scaling": None, "num_hidden_layers": 3, "sliding_window": 16, "head_dim": 64},
    "granitemoe": {},
    "granitemoe-tied": {"tie_word_embeddings": True, "num_local_experts": 9, "num_experts_per_tok": 3},
    "mixtral": {},
    "mixtral-window": {"sliding_window": 16, "num_local_experts": 3, "num_experts_per_tok": 3},
    "olmoe": {},
    "olmoe-renormalised-tied": {"norm_topk_prob": True, "tie_word_embeddings": True, "num_experts_per_tok": 1},
    "qwen3_moe": {},
    "qwen3_moe-plain-layers": {"decoder_sparse_step": 2, "num_hidden_layers": 4, "mlp_only_layers": [3]},
    "qwen3_moe-many-tied": {
        "num_experts": 40,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
        "moe_intermediate_size": 16,
        "tie_word_embeddings": True,
    },
    "qwen3_moe-window": {"use_sliding_window": True, "sliding_window": 16, "attention_bias": True},
    "qwen3_moe-odd": {"moe_intermediate_size": 13, "hidden_size": 33, "num_key_value_heads": 1},
}
CASES |= {
    "lfm2": {"rms_norm_eps": None},
    "qwen3_5_text": {},
    "qwen3_5_text-tied": {"tie_word_embeddings": True, "linear_num_value_heads": 2, "linear_num_key_heads": 1},
    "qwen3_5_text-biases": {"attention_bias": True, "num_key_value_heads": 1, "linear_num_value_heads": 2},
    "qwen3_5_text-other-taps": {"linear_conv_kernel_dim": 2, "linear_key_head_dim": 24, "linear_value_head_dim": 40},
    "qwen3_5_text-by-layer-types": {
        "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        "num_hidden_layers": 3,
        "head_dim": 64,
        "partial_rotary_factor": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.5,
            "mrope_interleaved": True,
            "mrope_section": [6, 5, 5],
        },
    },
    "lfm2-as-shipped": {"block_ff_dim": 480, "block_multiple_of": 32, "tie_embedding": True, "conv_bias": False},
    "lfm2-many-taps": {"conv_L_cache": 7, "conv_bias": True, "num_hidden_layers": 4, "full_attn_idxs": [2]},
    "lfm2-one-tap": {"conv_L_cache": 1, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False},
    "lfm2-by-layer-types": {"layer_types": ["full_attention", "conv", "conv"], "num_hidden_layers": 3, "head_dim": 48},
}
CASES |= {
    "lfm2_moe": {},
    "lfm2_moe-as-shipped": {"num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2, **FOUR_LAYERS},
    "lfm2_moe-without-bias": {"use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 2.5},
    "lfm2_moe-scaled": {"routed_scaling_factor": 0.3, "num_dense_layers": 0, "conv_bias": True},
    "lfm2_moe-untied": {"tie_word_embeddings": False, "num_experts_per_tok": 1, "conv_L_cache": 5},
    "lfm2_moe-dense": {"num_dense_layers": 2},
}
CASES |= {
    "lfm3": {},
    "lfm3-as-shipped": {**SIX_LAYERS, "layer_types": None, "norm_eps": 1e-5},
    "lfm3-plain": {"use_sandwich_norm": False, "use_attention_gate": False, "attention_bias": True, "conv_bias": True},
    "lfm3-wide-heads": {"head_dim": 64, "num_key_value_heads": 1, "conv_L_cache": 3, "sliding_window": 7},
    "lfm3-rotations": {
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {**PROPORTIONAL, "rope_theta": 5e5, "partial_rotary_factor": 0.25, "factor": 2.0},
            "sliding_attention": {**PROPORTIONAL, "rope_theta": 100.0, "partial_rotary_factor": 0.75},
        },
    },
}
CASES |= {
    "qwen3_5_moe_text": {},
    "qwen3_5_moe_text-tied": {"tie_word_embeddings": True, "hidden_size": 64},
    "qwen3_5_moe_text-odd": {"num_experts": 9, "moe_intermediate_size": 13, "shared_expert_intermediate_size": 7},
    "qwen3_5_moe_text-many": {"num_experts": 40, "num_experts_per_tok": 8, "hidden_size": 64},
    "qwen2_moe": {},
    "qwen2_moe-plain-layers": {"decoder_sparse_step": 2, "num_hidden_layers": 4, "mlp_only_layers": [3]},
    "qwen2_moe-window": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2, **FOUR},
    "qwen2_moe-by-layer-types": {"use_sliding_window": True, "sliding_window": 16, "layer_types": FULL_FIRST},
    "qwen2_moe-without-biases": {"qkv_bias": False, "norm_topk_prob": False},
    "granitemoeshared": {},
    "granitemoeshared-without": {"shared_intermediate_size": 0},
    "granitemoeshared-odd-tied": {"shared_intermediate_size": 13, "tie_word_embeddings": True},
    "glm4_moe-as-shipped": {"n_routed_experts": 32, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, **FOUR},
    "glm4_moe-other": {"use_qk_norm": True, "attention_bias": False, "n_shared_experts": 2, "first_k_dense_replace": 0},
}
KINDS_OF_FIVE = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SHARING = {"num_hidden_layers": 5, "layer_types": KINDS_OF_FIVE, "num_kv_shared_layers": 2}
CASES |= {
    "gemma4_text": {},
    "gemma4_text-shared": SHARING | {"use_double_wide_mlp": True, "sliding_window": 7},
    "gemma4_text-keys-are-values": SHARING | {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
    "gemma4_text-plain": {"hidden_size_per_layer_input": 0, "global_head_dim": 16, "final_logit_softcapping": 3.0},
    "gemma4_text-experts": {
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 13,
        **SHARING,
    },
    "gemma4_text-biases": {"attention_bias": True, "head_dim": 48},
    "gemma4_text-quarter-of-20": {"head_dim": 20, "global_head_dim": 20},
    "gemma4_text-no-layer-differs": {"per_layer_config": {}},
    "gemma4_text-by-layer": {
        "per_layer_config": {"1": {"head_dim": 64, "num_key_value_heads": 4}},
        "layer_types": ["sliding_attention"] * 2,
        "rope_parameters": {
            "full_attention": {**PROPORTIONAL, "rope_theta": 5e5, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
}
CASES |= {f"{family.get('architecture', 'llama')}-{name}": family for name, family in FAMILIES.items()}
