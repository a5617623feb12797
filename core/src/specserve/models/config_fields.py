"""What becomes of every field of config.json: used, neutral whatever it says, neutral at some values only, or unknown.

A field at a value that would change the arithmetic is refused by name. A test compares the lists with the code of the
installed transformers. Knows nothing about what the used fields mean: `specserve.models.read_config` and families do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.rope_config import RopeConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.model_files import RawJson
    from specserve.models.family import ModelFamily

FIELDS = {
    "used": """
        architectures attention_bias dtype eos_token_id head_dim hidden_act hidden_size intermediate_size
        layer_types max_position_embeddings max_window_layers mlp_bias model_type num_attention_heads
        num_hidden_layers num_key_value_heads original_max_position_embeddings partial_rotary_factor
        quantization_config rms_norm_eps rope_parameters rope_scaling rope_theta sliding_window
        tie_word_embeddings torch_dtype use_sliding_window vocab_size
    """,
    "token ids: the tokenizer's files say what is added to a prompt": """
        bos_token_id decoder_start_token_id pad_token_id sep_token_id
    """,
    "training, and how weights are made before it": """
        attention_dropout attn_pdrop classifier_dropout embd_pdrop gradient_checkpointing hidden_dropout
        id2label init_std initializer_factor initializer_range label2id num_labels output_router_logits
        pretraining_tp problem_type resid_pdrop router_aux_loss_coef router_jitter_noise
    """,
    "how transformers computes the same, and what a call returns": """
        attn_implementation cache_implementation chunk_size_feed_forward distributed_config
        experts_implementation is_decoder output_attentions output_hidden_states return_dict torchscript
        use_bfloat16 use_cache
    """,
    "of tasks, and of models with encoders": """
        add_cross_attention cross_attention_hidden_size finetuning_task prefix pruned_heads task_specific_params
        tf_legacy_loss tie_encoder_decoder token_classification_bias
    """,
    "where the file comes from": """
        auto_map is_llama_config model_name name_or_path tokenizer_class transformers.js_config
        transformers_version unsloth_fixed unsloth_version
    """,
    "layers for drafts: the plugin eagle reads them": """
        mtp_layer_types mtp_num_hidden_layers num_mtp_layers num_nextn_predict_layers
    """,
    "sampling: generation_config.json and requests say it": """
        bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping
        encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id
        length_penalty max_length max_new_tokens min_length min_p no_repeat_ngram_size num_beam_groups num_beams
        num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate
        suppress_tokens temperature top_k top_p typical_p
    """,
}
"""What a field is for, and the fields. The first are read (a family may have a fixed value for one of them, such as
Qwen2 for its biases); the others change nothing, whatever they say."""
KNOWN = frozenset(name for names in FIELDS.values() for name in names.split())

NOTHING: tuple[object, ...] = (None, False)
ONLY: dict[str, tuple[object, ...]] = {
    # Read by transformers for these families.
    "attention_chunk_size": (None,),
    "fusion_config": (None, {}),
    "is_causal": (True,),
    "is_encoder_decoder": NOTHING,
    "kv_sharing_modes": (None, []),
    "per_layer_config": (None, {}),
    "transformers_weights": (None, "model.safetensors", "model.safetensors.index.json"),
    # Of relatives of these families, or read by other engines: a file that sets one was not trained without it.
    "alibi": NOTHING,
    "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,),
    "clip_qkv": (None,),
    "embedding_multiplier": (None, 1),
    "final_logit_softcapping": (None,),
    "logit_scale": (None, 1),
    "logits_scaling": (None, 1),
    "no_rope_layers": (None, []),
    "parallel_residual": NOTHING,
    "quantization": (None,),
    "query_pre_attn_scalar": (None,),
    "residual_multiplier": (None, 1),
    "rope_interleaved": NOTHING,
    "scale_emb": (None, 1),
    "use_alibi": NOTHING,
    "use_bidirectional_attention": NOTHING,
    "use_mrope": NOTHING,
    "use_parallel_residual": NOTHING,
}
"""The values at which a field changes nothing; others are refused."""

ROPE_KEYS = frozenset(RopeConfig.__struct_fields__) | {
    *("type", "mrope_section", "mrope_interleaved", "finetuned", "max_position_embeddings")
}
"""mrope gives images' tokens other positions; those of text are the plain ones. The length counts outside alone."""


def check_fields(raw: RawJson, family: ModelFamily, where: str) -> None:
    """ModelError for what would change the arithmetic and is not implemented."""
    for name, allowed in ONLY.items():
        if name in raw and raw[name] not in allowed and name not in family.reads:
            raise ModelError(
                f"{where}: {name} = {raw[name]!r} is not implemented; allowed: {values(allowed)}. Serve a model "
                "without it; remove the key only if the weights were trained without it."
            )
    _check_model_type(raw, family.name, where)
    family.check(raw, where)


def unknown_fields(raw: RawJson, family: ModelFamily) -> tuple[str, ...]:
    """Names that no list has, those within the rotary settings included. A leading underscore is a private note."""
    known = KNOWN | ONLY.keys() | {*family.reads}
    unknown = [name for name in raw if name not in known and not name.startswith("_")]
    key = "rope_scaling" if raw.get("rope_scaling") else "rope_parameters"
    in_rope = [path for path in unknown_in_rope(raw.get(key), key) if path.rpartition(".")[2] not in family.reads]
    return tuple(sorted([*unknown, *in_rope]))


def unknown_in_rope(rope: object, path: str) -> Iterator[str]:
    """rope: the settings of one rotation, or of one for each kind of layer."""
    for name, value in rope.items() if isinstance(rope, dict) else ():
        if isinstance(value, dict):
            yield from unknown_in_rope(value, f"{path}.{name}")
        elif name not in ROPE_KEYS:
            yield f"{path}.{name}"


def values(allowed: tuple[object, ...]) -> str:
    """The values of a field, as JSON has them."""
    return f"{', '.join(json.dumps(value) for value in allowed)} or no such key"


def _check_model_type(raw: RawJson, family: str, where: str) -> None:
    """transformers goes by model_type and other engines by architectures: a file must not contradict itself."""
    if raw.get("model_type") not in (None, family):
        raise ModelError(
            f"{where}: architectures names family {family}, model_type {raw['model_type']!r}. Correct one of them: "
            f"transformers would compute what model_type says, and only {family!r} fits the architecture."
        )
