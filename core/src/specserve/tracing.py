"""What `--trace` shows on standard error: one line for each hook that is called, or for each request of each step.

Owns the topics, the two forms of a line and who listens. Costs nothing where nobody does. No torch.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS = ("hooks", "drafts")
FORMS = ("text", "json")


class Trace:
    """One topic. `fields` of an event are numbers and texts."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.logger = logging.getLogger(f"specserve.trace.{topic}")
        self.form = "text"

    @property
    def is_on(self) -> bool:
        return self.logger.isEnabledFor(logging.DEBUG)

    def event(self, **fields: object) -> None:
        if self.is_on:
            self.logger.debug("%s", self.line(fields))

    def line(self, fields: dict[str, object]) -> str:
        if self.form == "json":
            return json.dumps({"trace": self.topic, **fields})
        return f"{self.topic}: " + " ".join(f"{name}={text_of(value)}" for name, value in fields.items())


HOOKS, DRAFTS = (Trace(topic) for topic in TOPICS)


def text_of(value: object) -> str:
    """With quotes where there are blanks."""
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or " " in text else text


def start_tracing(topics: Sequence[str], form: str = "text") -> None:
    """Print the events of these topics from now on. Raises ConfigError for an unknown one."""
    for topic in topics:
        if topic not in TOPICS:
            allowed = f"some of {', '.join(TOPICS)}, separated by commas"
            raise ConfigError(f"--trace, or SPECSERVE_TRACE, must be {allowed}; got {topic!r}.")
    for trace in (HOOKS, DRAFTS):
        if trace.topic in topics and not trace.is_on:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("%(message)s"))
            trace.logger.addHandler(handler)
            trace.logger.setLevel(logging.DEBUG)
            trace.logger.propagate = False
            trace.form = form
