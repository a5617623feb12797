"""Drafters that may be asked beside others."""

from __future__ import annotations

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.testing.drafters import DrafterPlugin


def plugin(drafter, planner=None):
    declaration = PluginDeclaration(
        name=drafter.name,
        provides={"draft.chain": "a test's drafter"},
        compatible={"draft.chain": "drafts are compared and the best one is verified"},
    )
    return InProcessPlugin(DrafterPlugin(lambda: drafter, planner), declaration)
