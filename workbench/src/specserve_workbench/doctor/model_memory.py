"""Whether the model and a KV cache fit into memory, by the engine's own rules, without loading anything.

What drafters take, such as draft models, is left out: only their plugins know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.engine.choose_attention import by_shape, checked_choice, needs_of
from specserve.engine.resolve_config import find_device
from specserve.engine.size_cache import CacheShape, free_memory, num_blocks
from specserve.engine.size_states import StateSizes, num_saved
from specserve.models.served_length import resolve_length
from specserve.protocols import AttentionSpec
from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, bytes_text, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case


def model_memory_rows(case: Case) -> list[Row]:
    return rows_of(case, weights_fit, kv_cache, recurrent_states)


def free_bytes(case: Case) -> int:
    """Before anything is loaded."""
    with needed("the device is not there"):
        find_device(case.engine.device)
        return free_memory(case.engine.device)


def weights_bytes(case: Case) -> int:
    with needed("the weights cannot be read"):
        return case.weights().served


def weights_fit(case: Case) -> Iterator[Row]:
    size, free = weights_bytes(case), free_bytes(case)
    figures = {"weights": size, "free": free}
    if size > free:
        found = f"weights of {bytes_text(size)} do not fit into {bytes_text(free)}"
        yield Row("weights fit", "failed", found, "free memory, or serve a smaller model", figures)
    else:
        yield Row("weights fit", "ok", f"{bytes_text(size)} of {bytes_text(free)} free", figures=figures)


def kv_cache(case: Case) -> Iterator[Row]:
    """Raises ConfigError where no attention backend fits, or memory is too small."""
    free = max(free_bytes(case) - weights_bytes(case), 0)
    with needed("the plugins do not start"):
        case.host()
    with needed("there are no kernels"):
        case.kernels()  # before attention backends are asked
    shape, config, model = cache_shape(case), case.resolved(), case.model_config()
    length = resolve_length(model, config.max_model_len)
    blocks = num_blocks(config, length, shape, free)
    tokens, size = blocks * config.block_size, blocks * shape.bytes_per_block(config.block_size)
    found = f"{tokens} tokens in {bytes_text(size)}, {tokens / length:.1f} contexts of {length}"
    figures = {"tokens": tokens, "bytes": size, "max_model_len": length}
    if size > free:
        found += f"; only {bytes_text(free)} are left"
        yield Row("kv cache", "failed", found, "lower --kv-memory", figures)
    elif tokens <= length:
        advice = "longer requests are refused: free memory, raise --kv-memory, or lower --max-model-len"
        yield Row("kv cache", "warning", found, advice, figures)
    else:
        yield Row("kv cache", "ok", found, figures=figures)


def recurrent_states(case: Case) -> Iterator[Row]:
    """Raises ConfigError where memory is too small."""
    import torch

    with needed("the plugins do not start"):
        host = case.host()
    config, model = case.resolved(), case.model_config()
    if not model.recurrent:
        return
    drafts, hidden = any(token.startswith("draft.") for token in host.features), model.hidden_size
    layers = [
        (mixer.state_size(hidden), mixer.trail_width(hidden), mixer.update_size(hidden)) for mixer in model.recurrent
    ]
    sizes = StateSizes.of(layers, config.max_draft_tokens if drafts else 0, getattr(torch, config.dtype))
    saved = num_saved(config, sizes, max(free_bytes(case) - weights_bytes(case), 0))
    size = sizes.total(config.max_num_seqs, saved)
    found = f"{config.max_num_seqs} requests and {saved} saved states in {bytes_text(size)}"
    yield Row("recurrent states", "ok", found, figures={"saved": saved, "bytes": size, "of_one": sizes.state})


def cache_shape(case: Case) -> CacheShape:
    """Of the attention backend that would be chosen, which says how keys and values lie in memory."""
    import torch

    config, host, model = case.resolved(), case.host(), case.model_config()
    attending = model.attention_layers
    drafts = any(token.startswith("draft.") for token in host.features)
    spec = AttentionSpec(
        model.num_heads,
        model.num_kv_heads,
        model.head_dim,
        model.head_dim**-0.5,
        config.block_size,
        tuple(model.sliding_windows[layer] for layer in attending),
        soft_caps=(model.multipliers.score_cap,) * len(attending),
        sinks=(torch.empty(0) if model.sinks else None,) * len(attending),
    )
    specs = by_shape(spec, model.head_shapes)
    needs = needs_of(config, specs, drafts=drafts, trees="draft.tree" in host.features)
    choice = checked_choice(host, config, needs, specs)
    return choice.cache_shape(getattr(torch, config.dtype), model.token_widths)
