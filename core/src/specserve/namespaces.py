"""Who shares what: requests of one namespace share KV blocks and drafters' statistics.

    namespace  =  adapter, or adapter NUL salt     (adapter: "" for the base model; salt: the request's cache_salt)
    adapter    =  name@version, or as another plugin resolves a model

Two pairs of adapter and salt have two namespaces. An adapter holds no NUL, so the first NUL ends it, whatever the salt
is; no salt and an empty one differ. A version holds no "@", so the last "@" ends the adapter's name, which may hold
others.
"""

from __future__ import annotations

NUL = "\0"


def adapter_id(name: str, version: str) -> str:
    """The id of a version of an adapter."""
    assert NUL not in name + version, "a NUL would begin a salt"
    assert "@" not in version, "two adapters could have one id"
    return f"{name}@{version}"


def adapter_name(adapter: str) -> str:
    """Without its version; empty for the base model."""
    return adapter.rpartition("@")[0] or adapter


def is_adapter_id(adapter: str) -> bool:
    """Plugins may resolve models to ids of other forms."""
    return NUL not in adapter


def salt_of(namespace: str) -> str | None:
    """None where there is none; an empty salt is one."""
    _, nul, salt = namespace.partition(NUL)
    return salt if nul else None


def namespace_of(adapter: str, cache_salt: str | None) -> str:
    return adapter if cache_salt is None else f"{adapter}{NUL}{cache_salt}"
