"""Metrics by name, with the attribute of EngineMetrics and the help text. The names are vLLM's where it has them."""

from __future__ import annotations

GAUGES = {
    "vllm:num_requests_running": ("num_requests_running", "Requests in the running batch"),
    "vllm:num_requests_waiting": ("num_requests_waiting", "Requests that wait to be scheduled"),
    "vllm:kv_cache_usage_perc": ("kv_cache_usage", "KV cache in use; 1 means all of it"),
}
COUNTERS = {
    "vllm:prompt_tokens": ("prompt_tokens", "Prompt tokens computed"),
    "vllm:generation_tokens": ("generation_tokens", "Tokens generated"),
    "vllm:num_preemptions": ("num_preemptions", "Requests preempted and recomputed"),
    "vllm:prefix_cache_queries": ("prefix_cache_queries", "Tokens looked up in the prefix cache"),
    "vllm:prefix_cache_hits": ("prefix_cache_hits", "Tokens that the prefix cache served"),
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
}
