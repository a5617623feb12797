"""The names of fields that OpenAI's API or another server defines and this one does not serve.

Data only. `IGNORED` change no answer. A field of `REFUSED` is accepted with the values that change nothing and refused
with others; one of `RENAMED` is called otherwise here. What the bodies have is in `request_bodies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonValue

IGNORED = frozenset(
    {
        *("store", "metadata", "user", "safety_identifier", "service_tier", "session_id"),
        *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "cache_prompt"),
        "prediction",
        *("media_io_kwargs", "mm_processor_kwargs", "return_mm_kwargs"),
        "spaces_between_special_tokens",
        *("stream_interval", "guided_decoding_backend"),
    }
)


class Refusal(NamedTuple):
    """`neutral`: values that change nothing, besides null. `advice`: why it is refused, or what to send instead."""

    neutral: tuple[JsonValue, ...]
    advice: str


NO_BEAMS = "beam search is not served; leave it out"
NO_SUCH_SAMPLER = "this sampler is not served; use temperature, top_p, top_k or min_p"
REASONING = "reasoning always has a field of its own, beside content; chat_template_kwargs may turn it off"
NO_TRANSFER = "the KV cache is not transferred"
TEXT_ONLY = "only text is served"

REFUSED: dict[str, Refusal] = {
    "chat_template": Refusal((), "a template is code, so only the model's own is run; set its variables with "
                                 "chat_template_kwargs"),
    "functions": Refusal(([],), "send tools"),
    "function_call": Refusal(("none", "auto"), "send tool_choice"),
    "modalities": Refusal((["text"],), TEXT_ONLY),
    "audio": Refusal((), TEXT_ONLY),
    "prompt_embeds": Refusal((), "send the prompt as text or as token ids"),
    "web_search_options": Refusal((), "the server searches nothing; put what was found into a message"),
    "moderation": Refusal((), "the server moderates nothing"),
    "suffix": Refusal(("",), "text is not inserted; send the model's own fill-in-the-middle tokens in the prompt"),
    "truncate_prompt_tokens": Refusal((), "only prompts of /v1/completions and /v1/chat/completions are truncated"),
    "truncation_side": Refusal(("left",), "the last tokens of a prompt are kept"),
    "use_beam_search": Refusal((False,), NO_BEAMS),
    "num_beams": Refusal((0, 1), NO_BEAMS),
    "length_penalty": Refusal((1,), NO_BEAMS),
    "early_stopping": Refusal((False,), NO_BEAMS),
    "do_sample": Refusal((True,), "send temperature 0 for greedy decoding"),
    "logits_processors": Refusal(([],), "code in requests is not run; a plugin may add a logits processor"),
    "custom_logit_processor": Refusal(("",), "code in requests is not run; a plugin may add a logits processor"),
    "no_repeat_ngram_size": Refusal((0,), "use frequency_penalty or repetition_penalty"),
    "repetition_detection": Refusal((), "use frequency_penalty or repetition_penalty"),
    "typical_p": Refusal((1,), NO_SUCH_SAMPLER),
    "top_a": Refusal((0,), NO_SUCH_SAMPLER),
    "tfs_z": Refusal((1,), NO_SUCH_SAMPLER),
    "mirostat": Refusal((0,), NO_SUCH_SAMPLER),
    "dynatemp_range": Refusal((0,), NO_SUCH_SAMPLER),
    "xtc_probability": Refusal((0,), NO_SUCH_SAMPLER),
    "dry_multiplier": Refusal((0,), NO_SUCH_SAMPLER),
    "watermarking": Refusal((False,), "texts get no watermark"),
    "enable_thinking": Refusal((), "send it in chat_template_kwargs"),
    "thinking": Refusal((), "send chat_template_kwargs with the variable of the model's template"),
    "thinking_token_budget": Refusal((-1,), "reasoning is not bounded; chat_template_kwargs may turn it off"),
    "include_reasoning": Refusal((True,), REASONING),
    "separate_reasoning": Refusal((True,), REASONING),
    "logprob_token_ids": Refusal((), "log-probabilities are of the likeliest tokens; send logprobs"),
    "return_tokens_as_token_ids": Refusal((False,), "send return_token_ids"),
    "return_token_offsets": Refusal((False,), "send return_token_ids, whose text_offset has them"),
    "return_prompt_text": Refusal((False,), "send return_token_ids, and its prompt_token_ids to /detokenize"),
    "return_hidden_states": Refusal((False,), "hidden states stay in the server"),
    "routed_experts_prompt_start": Refusal((0,), "routes of experts are not returned"),
    "kv_transfer_params": Refusal(({},), NO_TRANSFER),
    "ec_transfer_params": Refusal(({},), NO_TRANSFER),
    "vllm_xargs": Refusal(({},), "no extension reads them"),
    "guided_whitespace_pattern": Refusal((), "send the whitespace in a regular expression or a grammar"),
    "stop_regex": Refusal(("", []), "send stop"),
    "safe_prompt": Refusal((False,), "send the safety instructions as a system message"),
}  # fmt: skip

RENAMED: dict[str, str] = {
    **dict.fromkeys(("max_new_tokens", "max_length", "n_predict", "num_predict"), "max_tokens"),
    **dict.fromkeys(("min_new_tokens", "min_length"), "min_tokens"),
    **dict.fromkeys(("stop_sequences", "stop_strings"), "stop"),
    **dict.fromkeys(("logits_bias", "logit_biases"), "logit_bias"),
    **dict.fromkeys(("json_schema", "format", "output_format"), "response_format"),
    **dict.fromkeys(("regex", "ebnf", "grammar", "guided_decoding"), "structured_outputs"),
    **dict.fromkeys(("system", "system_prompt", "instructions", "input"), "messages or prompt"),
    **dict.fromkeys(("lora_path", "adapter_id"), "model"),
    "reasoning": "reasoning_effort",
    "random_seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "num_return_sequences": "n",
    "no_stop_trim": "include_stop_str_in_output",
    "n_probs": "logprobs",
}
"""The name here by the name elsewhere."""

DEFAULTS: dict[str, tuple[JsonValue, ...]] = {
    **dict.fromkeys(("n", "best_of", "repetition_penalty", "skip_special_tokens", "add_generation_prompt"), (1,)),
    "parallel_tool_calls": (True,),
    "reasoning_effort": ("none",),
    "tool_choice": ("none", "auto"),
    "truncation": ("disabled",),
    "verbosity": ("medium",),
    "text": ({"format": {"type": "text"}},),
}
"""Values that change nothing, besides `EMPTY`: of fields that only another route has."""
EMPTY: tuple[JsonValue, ...] = (False, "", [], {})
"""Values that ask for nothing, besides null: of `RENAMED`, and of fields that only another route has."""
