"""specserve on Ray Serve: `serve run specserve_ray:app config=CONFIG.toml`, or `build_app` for a program of your own.

What needs Ray is imported when it is asked for, so that the policy can be used without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LAZY = ("app", "build_app")
__all__ = ["app", "build_app"]


def __getattr__(name: str) -> Callable[..., object]:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specserve_ray import application

    found: Callable[..., object] = getattr(application, name)
    return found
