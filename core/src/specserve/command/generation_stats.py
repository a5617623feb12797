"""Speed and acceptance of one generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve.types import SpeculationStats


@dataclass(slots=True)
class GenerationStats:
    """Times are seconds of time.perf_counter."""

    submitted: float
    first_token: float = 0.0
    last_token: float = 0.0
    num_tokens: int = 0
    speculation: SpeculationStats | None = None

    def summary(self) -> str:
        seconds = self.last_token - self.submitted
        parts = [
            f"{self.num_tokens} tokens in {seconds:.2f} s, {self.num_tokens / max(seconds, 1e-9):.1f} tokens/s, "
            f"first after {self.first_token - self.submitted:.3f} s"
        ]
        if self.speculation is not None and self.speculation.num_spec_steps:
            steps, accepted = self.speculation.num_spec_steps, self.speculation.num_accepted_draft_tokens
            parts.append(f"mean acceptance length {1 + accepted / steps:.2f} over {steps} verify steps")
            parts.append(f"{accepted} of {self.speculation.num_draft_tokens} draft tokens accepted")
            if len(self.speculation.by_drafter) > 1:
                for name, counts in sorted(self.speculation.by_drafter.items()):
                    parts.append(f"{name} {counts.num_accepted_draft_tokens} of {counts.num_draft_tokens}")
        else:
            parts.append("no drafts")
        return "; ".join(parts)
