"""Engines under hybrid_attn, for every choice that a CPU has, and backends that state other capabilities."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.attention.sdpa import SdpaFactory
from specserve.protocols import AttentionCapabilities
from specserve.types import SpeculationParams
from specserve_workbench.testing.engines import make_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.types import GenerateRequest

BACKENDS = ("sdpa", "cpu_paged")
CHOICES = list(product(BACKENDS, repeat=3))
"""(prefill, decode, verify)"""


def hybrid_options(*plugins: str, **settings: str) -> dict[str, Any]:
    """Options of `make_engine`: the native kernels for cpu_paged, hybrid_attn with its settings, and `plugins`."""
    return {
        "plugins": ("hybrid_attn", *plugins),
        "plugin_options": {"hybrid_attn": settings},
        "default_plugins": True,
    }


def hybrid_engine(model, drafter=None, *, beside=(), settings=None, **options):
    """`settings`: hybrid_attn's options; `beside`: other plugins."""
    chosen = hybrid_options(*beside, **(settings or {}))
    chosen["plugin_options"] |= options.pop("plugin_options", {})
    return make_engine(model, drafter, **chosen, **options)


def undrafted(requests: Iterable[GenerateRequest]) -> list[GenerateRequest]:
    """The same requests with speculation switched off in their bodies."""
    off = SpeculationParams(enabled=False)
    return [msgspec.structs.replace(request, speculation=off) for request in requests]


class Offer(SdpaFactory):
    """SDPA under another name and with other capabilities."""

    def __init__(self, name, **claims):
        self.name = name
        everything = {
            "paged": False, "tree_mask": True, "ragged": True, "row_invariant": True, "block_sizes": (16,),
            "devices": ("cpu",), "dtypes": ("bfloat16", "float32"),
        }  # fmt: skip
        self.capabilities = AttentionCapabilities(**(everything | claims))
