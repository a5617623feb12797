"""How the namespace of a request is encoded. Requests of one namespace may share KV blocks and drafters' statistics.

    namespace  =  model, or model NUL salt     (salt: the request's cache_salt)
    model      =  "" for the base model, adapter@version for a version of an adapter

The encoding is unique. A model holds no NUL, so the first NUL ends it, whatever the salt is; no salt and an empty one
differ. A version holds no "@", so the last "@" ends the adapter's name, which may hold others.
"""

from __future__ import annotations

NUL = "\0"


def adapter_namespace(adapter: str, version: str) -> str:
    assert NUL not in adapter + version, "a NUL would begin a salt"
    assert "@" not in version, "two adapters could have one namespace"
    return f"{adapter}@{version}"


def is_model_namespace(namespace: str) -> bool:
    """Whether it can take a salt: plugins may resolve models to namespaces of other forms."""
    return NUL not in namespace


def add_salt(model: str, salt: str | None) -> str:
    return model if salt is None else f"{model}{NUL}{salt}"


def adapter_name(namespace: str) -> str:
    """The adapter that the namespace is of; empty for the base model."""
    model = strip_salt(namespace)
    return model.rpartition("@")[0] or model


def strip_salt(namespace: str) -> str:
    """The model's own namespace: empty for the base model."""
    return namespace.partition(NUL)[0]
