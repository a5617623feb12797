"""What the router of this process has chosen, in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_ray.policies import find_policy

if TYPE_CHECKING:
    from collections.abc import Mapping


def policy_metrics(app_name: str) -> str:
    """Empty before its first request. The router runs in another thread: what it changes is copied first."""
    policy = find_policy(app_name)
    if policy is None:
        return ""
    reasons = {f'{{reason="{reason}"}}': count for reason, count in sorted(policy.reasons.items())}
    blocks = sum(len(each) for each in list(policy.prefixes.blocks.values()))
    return "".join(
        (
            family("specserve_router_choices_total", "counter", "Replicas chosen, by reason", reasons),
            family("specserve_router_replicas", "gauge", "Replicas that are known", {"": len(policy.ids)}),
            family("specserve_router_blocks", "gauge", "Blocks of text that are remembered", {"": blocks}),
        )
    )


def family(name: str, kind: str, help: str, samples: Mapping[str, int]) -> str:
    lines = "".join(f"{name}{labels} {value}\n" for labels, value in samples.items())
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}"
