"""Metrics by name, with the attribute of EngineMetrics and the help text. The names are vLLM's where it has them."""

from __future__ import annotations

GAUGES = {
    "vllm:num_requests_running": ("num_requests_running", "Requests in the running batch"),
    "vllm:num_requests_waiting": ("num_requests_waiting", "Requests that wait to be scheduled"),
    "vllm:kv_cache_usage_perc": ("kv_cache_usage", "KV cache in use; 1 means all of it"),
    "vllm:gpu_cache_usage_perc": ("kv_cache_usage", "vllm:kv_cache_usage_perc under its former name"),
    "specserve_recurrent_states_running": ("states_running", "Requests with a state of recurrent layers"),
    "specserve_recurrent_states_saved": ("states_saved", "States of recurrent layers saved for the prefix cache"),
    "specserve_recurrent_state_bytes": ("state_bytes", "Memory for the states of recurrent layers"),
}
COUNTERS = {
    "vllm:prompt_tokens": ("prompt_tokens", "Prompt tokens, computed or cached"),
    "vllm:prompt_tokens_cached": ("prompt_tokens_cached", "Prompt tokens that the prefix cache served"),
    "vllm:generation_tokens": ("generation_tokens", "Tokens generated"),
    "vllm:num_preemptions": ("num_preemptions", "Requests preempted and recomputed"),
    "vllm:prefix_cache_queries": ("prefix_cache_queries", "Tokens looked up in the prefix cache"),
    "vllm:prefix_cache_hits": ("prefix_cache_hits", "Tokens that the prefix cache served"),
    "vllm:gpu_prefix_cache_queries": ("prefix_cache_queries", "vllm:prefix_cache_queries under its former name"),
    "vllm:gpu_prefix_cache_hits": ("prefix_cache_hits", "vllm:prefix_cache_hits under its former name"),
    "vllm:spec_decode_num_drafts": ("num_drafts", "Drafts verified"),
    "vllm:spec_decode_num_draft_tokens": ("num_draft_tokens", "Tokens drafted and verified"),
    "vllm:spec_decode_num_accepted_tokens": ("num_accepted_tokens", "Draft tokens accepted"),
    "specserve_steps": ("num_steps", "Steps of the engine"),
}
COUNTERS_BY_DRAFTER = {
    "specserve_draft_tokens": ("draft_tokens_by_drafter", "Tokens drafted and verified, by drafter"),
    "specserve_accepted_draft_tokens": ("accepted_tokens_by_drafter", "Draft tokens accepted, by drafter"),
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("time_to_first_token", "From arrival to the first token"),
    "vllm:inter_token_latency_seconds": ("inter_token_latency", "Between tokens of one request"),
    "vllm:e2e_request_latency_seconds": ("e2e_request_latency", "From arrival to the last token"),
    "vllm:request_queue_time_seconds": ("request_queue_time", "From arrival to the first scheduling"),
    "vllm:request_prefill_time_seconds": ("request_prefill_time", "From the first scheduling to the first token"),
    "vllm:request_decode_time_seconds": ("request_decode_time", "From the first token to the last one"),
    "vllm:request_inference_time_seconds": ("request_inference_time", "From the first scheduling to the last token"),
    "vllm:request_time_per_output_token_seconds": (
        "request_time_per_output_token",
        "Of a request: the mean time between its tokens",
    ),
    "vllm:iteration_tokens_total": ("iteration_tokens", "Of a step: prompt tokens computed and tokens generated"),
}
TOKEN_HISTOGRAMS = {
    "vllm:request_prompt_tokens": ("request_prompt_tokens", "Prompt tokens of a request"),
    "vllm:request_generation_tokens": ("request_generation_tokens", "Tokens generated for a request"),
    "vllm:request_params_max_tokens": ("request_params_max_tokens", "The parameter max_tokens of a request"),
}
"""Their buckets end at the context's length."""
