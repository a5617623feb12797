"""The names under which the parts of an application find each other in a Ray cluster."""

from __future__ import annotations

APP, REPLICAS, INGRESS = "specserve", "replicas", "ingress"
"""Of the application, unless the configuration says otherwise, and of its deployments."""
NAMESPACE = "specserve"
"""Of actors."""


def actor_name(app_name: str) -> str:
    """Of the actor that keeps the changes of an application."""
    return f"changes:{app_name}"
