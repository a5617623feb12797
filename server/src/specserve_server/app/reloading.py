"""SIGHUP: files of the configuration are read again. What cannot be read is logged, and the old contents stay in use.

Where there is nothing to read again the signal keeps its default effect, which ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from specserve.announcements import announce
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

logger = logging.getLogger("specserve.server.reloading")


class ReloadedFile(NamedTuple):
    what: str
    """In messages: "the API keys"."""
    reload: Callable[[], None]
    """Raises ConfigError, and has changed nothing then."""


@contextmanager
def reloaded_on_hangup(files: Sequence[ReloadedFile], then: Callable[[], None]) -> Iterator[None]:
    if not files:
        yield
        return
    loop = asyncio.get_running_loop()

    def reload() -> None:
        reload_all(files, announce)
        then()

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def reload_all(files: Sequence[ReloadedFile], tell: Callable[[str], None]) -> None:
    for file in files:
        try:
            file.reload()
        except ConfigError as error:
            logger.error("SIGHUP: %s stay as they were: %s", file.what, error)
        else:
            tell(f"SIGHUP: {file.what} were read again")
