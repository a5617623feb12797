"""Engines under hybrid_attn, for every choice that a CPU has."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.testing.engines import make_engine
from specserve.types import SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.types import GenerateRequest

BACKENDS = ("sdpa", "cpu_paged")
CHOICES = list(product(BACKENDS, repeat=3))
"""(prefill, decode, verify)"""


def hybrid_options(*plugins: str, **settings: str) -> dict[str, Any]:
    """Options of `make_engine`: the native kernels bring cpu_paged, hybrid_attn is set, more plugins stand beside."""
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
