"""Drafts: their shapes, what is proposed and merged, and the planner that learns nothing."""

from specserve.batch.drafts import (
    ROOT,
    children_of,
    depths_of,
    is_chain,
    keep,
    likeliest_chain,
    match,
    num_leading,
    parents_of,
    paths_of,
    sources_of,
)
from specserve.batch.merging import Estimated, merge
from specserve.batch.proposals import OpenDraft, Proposal
from specserve.speculation.fixed_width import FixedWidthPlanner, draft_limit

__all__ = [
    "ROOT",
    "Estimated",
    "FixedWidthPlanner",
    "OpenDraft",
    "Proposal",
    "children_of",
    "depths_of",
    "draft_limit",
    "is_chain",
    "keep",
    "likeliest_chain",
    "match",
    "merge",
    "num_leading",
    "parents_of",
    "paths_of",
    "sources_of",
]
