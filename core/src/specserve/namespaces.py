"""How a request's namespace is made: the resolved model's own, then, where a cache salt is given, a mark and the salt.

Requests of one namespace may share KV blocks and what drafters learn. The base model's own namespace is empty.
"""

from __future__ import annotations

SALT_MARK = "\0"
"""No model's namespace holds it, so the way back is unique."""


def salted(model_namespace: str, salt: str | None) -> str:
    return model_namespace if salt is None else f"{model_namespace}{SALT_MARK}{salt}"


def unsalted(namespace: str) -> str:
    """The resolved model's own namespace: empty for the base model."""
    return namespace.partition(SALT_MARK)[0]
