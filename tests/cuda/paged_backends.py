"""`triton_paged` over the cache of a `paged_cases.World`, in several sizes of tiles; `make` makes its kernels."""

from __future__ import annotations

from specserve_cuda.attention.paged import PagedAttention
from specserve_cuda.attention.paged_plan import tile_config_for


def backend_of(world, make, rows=None):
    """`rows` 1 where bits are compared: the interpreter multiplies with numpy, whose rounding depends on a row's place
    in its matrix on some processors (AMD EPYC). With one row per tile every row has the same place."""
    config = tile_config_for(world.cache.data.itemsize, world.shape.heads // world.shape.kv_heads, rows)
    return PagedAttention(world.spec, world.cache, world.device, make, config)


def short_splits(world, make):
    """One row per tile, and splits of 32 keys: their borders are reached in fewer programs than those of 256."""
    config = backend_of(world, make, rows=1).config
    return PagedAttention(world.spec, world.cache, world.device, make, config._replace(block_n=16, split_size=32))


def tall_tiles(world, make):
    """As many rows per tile as it takes, and splits of 64 keys in two steps: for sums that are only near."""
    config = backend_of(world, make).config
    return PagedAttention(world.spec, world.cache, world.device, make, config._replace(block_n=32, split_size=64))


def wide_keys(world, make):
    """128 keys at a time: fewer steps for the interpreter."""
    config = backend_of(world, make).config
    return PagedAttention(world.spec, world.cache, world.device, make, config._replace(block_n=128))
