"""Faults of plugins' parts and of requests: counted by plugin, part and reason, and logged once.

An exception from a request's own part is a `RequestFault` and ends that request. Where a plugin's part raises, its
result is left out; after `limit` faulty calls in a row the part is switched off. Knows nothing about what the parts
do. No torch.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections import Counter
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from specserve.code_places import in_brackets, place_of, place_of_error

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)
T = TypeVar("T")

FAULTS = (Exception, SystemExit, GeneratorExit, CancelledError)
"""What guards catch. A KeyboardInterrupt is the user's and passes."""
MAX_MESSAGE = 500


class BadAnswerError(Exception):
    """A part broke its contract without raising; the message is a short reason that labels a metric. `detail`: for the
    author, what was got and what is allowed."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class RequestFault(Exception):
    """Something that belongs to one request raised: the request ends with this message, and no other does.

    `what` names it within a sentence; `part` is the plugin's part, where it is known.
    """

    def __init__(self, request_id: str, what: str, error: BaseException, part: PluginPart | None = None) -> None:
        super().__init__(f"{what} {error_summary(error)}")
        self.request_id, self.what, self.error, self.part = request_id, what, error, part


def reason_of(error: BaseException) -> str:
    """A short text that labels a metric: no addresses, numbers or text of a request."""
    return str(error) if isinstance(error, BadAnswerError) else f"raised {type(error).__name__}"


def error_summary(error: BaseException) -> str:
    """The error as readable text. Never raises, even where the error's own `__str__` does."""
    if isinstance(error, BadAnswerError):
        return str(error)
    text = error_text(error)
    return f"raised {type(error).__name__}" + (f": {text}" if text else "")[:MAX_MESSAGE]


def full_summary(error: BaseException, code: object) -> str:
    """With the author's line that raised; where the core found an answer wrong, with that of `code`, which gave it."""
    where = place_of_error(error) or (place_of(code) if code is not None else "")
    detail = error.detail if isinstance(error, BadAnswerError) else ""
    return f"{error_summary(error)}{in_brackets(where)}" + (f": {detail}" if detail else "")


def error_text(error: BaseException) -> str:
    """The error's own text, empty where its `__str__` raises."""
    try:
        return str(error)
    except FAULTS:
        return ""


class FaultLog:
    """The faults of one engine and its server. Any thread may count."""

    def __init__(self, limit: int = 5) -> None:
        self.limit = limit
        """Faulty calls in a row after which a part is switched off."""
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By (plugin, part, reason)."""
        self.disabled: set[tuple[str, str]] = set()
        """(plugin, part)."""
        self.lock = Lock()

    def part(self, plugin: str, name: str, *, needed: bool = False, code: object = None) -> PluginPart:
        """`needed`: it is never switched off, whatever it does. `code`: of the plugin, what is called."""
        return PluginPart(plugin, name, self, needed, code)

    def count(self, plugin: str, part: str, error: BaseException, consequence: str = "", code: object = None) -> None:
        key = plugin, part, reason_of(error)
        with self.lock:
            self.counts[key] += 1
            first = self.counts[key] == 1
        if first:
            what = f"{full_summary(error, code)}{consequence}"
            logger.warning("plugin %s: its %s %s", plugin, part, what, exc_info=error)

    def disable(self, plugin: str, part: str, faults_in_a_row: int) -> None:
        with self.lock:
            self.disabled.add((plugin, part))
        logger.error("plugin %s: its %s is switched off after %d faults in a row", plugin, part, faults_in_a_row)


@dataclass(slots=True, eq=False)
class PluginPart:
    """One part of a plugin: safe to call, and its faults are counted."""

    plugin: str
    name: str
    log: FaultLog
    needed: bool = False
    code: object = None
    faults_in_a_row: int = 0
    enabled: bool = True

    def call(self, default: T, action: Callable[..., T], *arguments: Any) -> T:
        """The action's answer; `default` where it raises, and once the part is switched off."""
        if not self.enabled:
            return default
        try:
            answer = action(*arguments)
        except FAULTS as error:
            self.failed(error)
            return default
        self.faults_in_a_row = 0
        return answer

    def failed(self, error: BaseException, consequence: str = "; it is left out") -> None:
        self.log.count(self.plugin, self.name, error, consequence, self.code)
        self.faults_in_a_row += 1
        if self.enabled and not self.needed and self.faults_in_a_row >= self.log.limit:
            self.enabled = False
            self.log.disable(self.plugin, self.name, self.faults_in_a_row)

    def succeeded(self) -> None:
        self.faults_in_a_row = 0
