"""The policies of this process by application, so that others read what they know and count.

Ray pickles the module of a request router by value, its globals with it: what is shared must be in another module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve_ray.policy import Policy

POLICIES: dict[str, Policy] = {}


def keep_policy(app_name: str, policy: Policy) -> None:
    POLICIES[app_name] = policy


def find_policy(app_name: str) -> Policy | None:
    """None before the first request: Serve makes its router then."""
    return POLICIES.get(app_name)
