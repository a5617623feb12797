"""What vLLM's example dashboards read: by dashboard the series of its queries, with the labels that these use.

Series that vLLM itself gives no more are left out: num_requests_swapped, cpu_cache_usage_perc, and the former names of
kv_cache_usage_perc and inter_token_latency_seconds.
"""

from __future__ import annotations

BY_MODEL = ("model_name",)


def quantiles(name: str, *labels: str) -> dict[str, tuple[str, ...]]:
    return {f"{name}_bucket": (*labels, "le"), f"{name}_sum": labels, f"{name}_count": labels}


DASHBOARDS = {
    "performance statistics": {
        **quantiles("vllm:e2e_request_latency_seconds"),
        **quantiles("vllm:time_to_first_token_seconds"),
        **quantiles("vllm:inter_token_latency_seconds"),
        "vllm:generation_tokens_total": BY_MODEL,
        "vllm:prompt_tokens_total": (),
        "vllm:iteration_tokens_total_count": (),
    },
    "query statistics": {
        "vllm:request_success_total": BY_MODEL,
        "vllm:e2e_request_latency_seconds_bucket": ("le", "model_name"),
        "vllm:request_prompt_tokens_bucket": ("le", "model_name"),
        "vllm:prompt_tokens_total": BY_MODEL,
        "vllm:generation_tokens_total": BY_MODEL,
        "vllm:num_requests_running": (),
        "vllm:num_requests_waiting": (),
        "vllm:kv_cache_usage_perc": (),
    },
    "grafana.json": {
        **quantiles("vllm:e2e_request_latency_seconds", "model_name"),
        **quantiles("vllm:time_to_first_token_seconds", "model_name"),
        **quantiles("vllm:inter_token_latency_seconds", "model_name"),
        "vllm:prompt_tokens_total": BY_MODEL,
        "vllm:generation_tokens_total": BY_MODEL,
        "vllm:num_requests_running": BY_MODEL,
        "vllm:num_requests_waiting": BY_MODEL,
        "vllm:kv_cache_usage_perc": BY_MODEL,
        "vllm:request_prompt_tokens_bucket": ("model_name", "le"),
        "vllm:request_generation_tokens_bucket": ("model_name", "le"),
        "vllm:request_success_total": ("model_name", "finished_reason"),
        "vllm:request_queue_time_seconds_sum": BY_MODEL,
        "vllm:request_prefill_time_seconds_sum": BY_MODEL,
        "vllm:request_decode_time_seconds_sum": BY_MODEL,
        "vllm:request_max_num_generation_tokens_sum": BY_MODEL,
    },
    "speculative decoding": {
        "vllm:spec_decode_num_drafts_total": ("model_name", "engine"),
        "vllm:spec_decode_num_draft_tokens_total": ("model_name", "engine"),
        "vllm:spec_decode_num_accepted_tokens_total": ("model_name", "engine"),
        "vllm:spec_decode_num_accepted_tokens_per_pos_total": ("model_name", "engine", "position"),
    },
    "caches and adapters": {
        "vllm:prefix_cache_queries_total": ("model_name", "engine"),
        "vllm:prefix_cache_hits_total": ("model_name", "engine"),
        "vllm:prompt_tokens_cached_total": ("model_name", "engine"),
        "vllm:cache_config_info": ("engine", "block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching"),
        "vllm:lora_requests_info": ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
    },
    "histograms of requests": {
        **quantiles("vllm:request_inference_time_seconds", "model_name", "engine"),
        **quantiles("vllm:request_time_per_output_token_seconds", "model_name", "engine"),
        **quantiles("vllm:request_params_n", "model_name", "engine"),
        **quantiles("vllm:request_params_max_tokens", "model_name", "engine"),
        **quantiles("vllm:iteration_tokens_total", "model_name", "engine"),
    },
}
"""The first three are vLLM's examples; the others are what community dashboards and gateways read besides."""
IDLE_IS_ZERO = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
"""Series that are 0 while nothing runs."""
