"""What an engine computes with: the model, its kernels and adapters, the drafters, and the cache with its attention.

The model is loaded and adapted first, then drafters state their needs, then the KV cache is sized, when all weights are
in memory. What plugins' hooks return is checked in `roles`.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from specserve.engine.choose_attention import AttentionChoice, ChosenAttention, check_attention_name, choose_attention
from specserve.engine.connect_drafters import LayeredDrafter, draft_bytes, find_layered
from specserve.engine.make_tokenizer import check_vocabulary, make_tokenizer
from specserve.engine.model_roles import collect_families, collect_formats, collect_libraries, make_part
from specserve.engine.resolve_config import find_device, resolve_config
from specserve.engine.roles import OwnedKernels, make_drafters, make_kernels
from specserve.engine.size_cache import make_cache
from specserve.engine.size_states import make_states
from specserve.engine.target_keys import check_target_keys
from specserve.engine.target_pass import PassSize, check_target
from specserve.load_progress import ASSEMBLING, DOWNLOADING, PACKING, READING
from specserve.memory import keep_freed_memory, return_freed_memory
from specserve.models.library import library_of
from specserve.models.loader import ModelLoader
from specserve.models.locate import locate_on_disk, locate_target
from specserve.models.projection import Projection
from specserve.models.read_config import read_config
from specserve.models.weight_files import patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from specserve.config import EngineConfig
    from specserve.engine.states import NoStates
    from specserve.kv.cache import KVCache
    from specserve.load_progress import ProgressCallback
    from specserve.models.family import ModelFamily
    from specserve.models.library import LibraryModel
    from specserve.models.part import ModelPart
    from specserve.models.served_model import ServedModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Drafter, KernelSet
    from specserve.text.tokenizer import HfTokenizer

log = logging.getLogger(__name__)


class Components(NamedTuple):
    """What is loaded and sized before the step loop is made of it."""

    config: EngineConfig
    host: PluginHost
    device: torch.device
    tokenizer: HfTokenizer
    kernels: OwnedKernels
    model: ServedModel
    drafters: list[Drafter]
    layered: list[LayeredDrafter]
    """Those of the drafters that have layers of their own."""
    cache: KVCache
    choice: AttentionChoice
    """Which attention the target has, from which further backends over its cache can be built."""
    attention: ChosenAttention
    states: NoStates


def load_components(config: EngineConfig, host: PluginHost, on_progress: ProgressCallback) -> Components:
    if locate_on_disk(config.model) is None:
        on_progress(DOWNLOADING, 0, 0)
    formats = collect_formats(config, host)
    path = locate_target(config.model, patterns_of(formats))
    config = msgspec.structs.replace(config, graphs=host.config.graphs)  # what its plugins run with
    families = collect_families(config, host)
    served_by = library_of(path, families, collect_libraries(config, host))
    config = resolve_config(config, stored_dtype(path, families, served_by))
    check_attention_name(config, host)
    part = make_part(config, host)
    with closed_on_failure(part):
        loader = ModelLoader(families, formats, partial(on_progress, READING), part, served_by)
        return load_rest(part.configure(config), host, path, loader, on_progress)


def stored_dtype(path: Path, families: Sequence[ModelFamily], served_by: LibraryModel | None) -> str:
    """What the checkpoint says its weights are."""
    if served_by is None:
        return read_config(path, families).dtype
    return served_by.library.dtype(served_by.raw, str(path / "config.json"))


def load_rest(
    config: EngineConfig, host: PluginHost, path: Path, loader: ModelLoader, on_progress: ProgressCallback
) -> Components:
    """What is loaded once it is known which part of the model this process has."""
    torch.set_num_threads(config.threads or 1)
    keep_freed_memory()
    device = find_device(config.device)
    tokenizer = make_tokenizer(config, path)
    kernels = make_kernels(config, host)
    model = loader.load(
        path,
        kernels=kernels.kernels,
        dtype=config.dtype,
        device=config.device,
        max_model_len=config.max_model_len,
    )
    config = msgspec.structs.replace(config, max_model_len=model.max_model_len)
    check_vocabulary(config, tokenizer, model.vocab_size)
    host.collect("adapt_model", model=model, config=config)
    pack_weights(model, kernels.kernels, on_progress)
    return_freed_memory()
    on_progress(ASSEMBLING, 0, 0)
    drafters = make_drafters(config, host, model)
    attention = choose_attention(config, host, model, drafters)
    layered = find_layered(config, host, drafters)
    shape = attention.cache_shape(model.dtype, model.token_widths)
    check_target(model, drafters)
    check_target_keys(model, drafters, attention)
    of_drafts = PassSize.of(config, drafters).added_to(draft_bytes(config, model, layered), model.vocab_size)
    cache = make_cache(config, model, shape, of_drafts)
    model.token_states = cache.token_states
    states = make_states(config, model, drafts=bool(drafters))
    chosen = attention.build(cache, device)
    return Components(
        config, host, device, tokenizer, kernels, model, drafters, layered, cache, attention, chosen, states
    )


@contextmanager
def closed_on_failure(part: ModelPart) -> Iterator[None]:
    """Where the block raises, what computes the other parts is ended, too."""
    try:
        yield
    except BaseException:
        part.close()
        raise


def pack_weights(model: ServedModel, kernels: KernelSet, on_progress: ProgressCallback) -> None:
    num_bytes = sum(table.unpacked_bytes for table in model.tables)
    for number, projection in enumerate(model.projections.values(), 1):
        projection.finalize(kernels)
        num_bytes += projection.unpacked_bytes if isinstance(projection, Projection) else 0
        on_progress(PACKING, number, len(model.projections))
    if num_bytes:
        size, name = num_bytes / 2**20, kernels.name
        log.warning("kernels %s unpack weights of few bits, which now take %.0f MiB in the model's dtype", name, size)
