"""MiMo, dense: Xiaomi LLM-Core Team, 2025."""

from __future__ import annotations

from specserve.models.families.qwen2 import Qwen2


class Mimo(Qwen2):
    """A Qwen2 by another name, whose checkpoints have a block that drafts."""

    name = "mimo"
    architectures = ("MiMoForCausalLM",)
