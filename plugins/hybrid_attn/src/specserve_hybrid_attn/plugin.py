"""The hooks of hybrid_attn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_hybrid_attn.choose_backends import choose
from specserve_hybrid_attn.options import HybridOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api import AttentionFactory, AttentionNeeds


@hookimpl
def plugin_options() -> type[HybridOptions]:
    return HybridOptions


@hookimpl
def select_attention(
    options: HybridOptions, available: Mapping[str, AttentionFactory], needs: AttentionNeeds
) -> AttentionFactory:
    return choose(options, available, needs)
