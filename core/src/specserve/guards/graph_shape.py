"""Asks plugins whether a step may be replayed from a graph.

A plugin that raises, or answers something else than a text, has declined: what it would have refused must not happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import FAULTS, BadAnswerError
from specserve.plugins.loaded_plugin import cause_of

if TYPE_CHECKING:
    from specserve.plugins.host import PluginHost
    from specserve.protocols import GraphShape

MAX_REASON = 200


def reasons_against(host: PluginHost, shape: GraphShape) -> list[str]:
    """`plugin: reason` of each that declines. No request asks, so that a RequestError is a fault like any other."""
    reasons, failed = [], []
    for plugin in host.implementers["decline_graph"]:
        try:
            answers = plugin.call("decline_graph", shape=shape)
            reasons += [f"{plugin.name}: {checked_reason(answer)}" for answer in answers]
        except FAULTS as error:
            failed.append(f"{plugin.name}: it failed to say whether it declines")
            host.faults.count(plugin.name, "decline_graph", cause_of(error), "; such steps run without graphs")
    return [*reasons, *failed]


def checked_reason(answer: object) -> str:
    """A plugin's reason on one line. Raises BadAnswerError."""
    if not isinstance(answer, str) or not answer.strip():
        raise BadAnswerError("gave something else than a reason or None")
    return " ".join(answer.split())[:MAX_REASON]
