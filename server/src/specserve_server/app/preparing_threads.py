"""The threads in which requests are prepared: bodies rendered by templates, tokenized and checked.

Their priority is lower than that of the threads that compute and of the event loop, so that a flood of long prompts
takes what these leave. Only Linux has priorities of threads; the tokenizer's own threads inherit that of the first
thread that calls it.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

NICE = 10
"""Added to the process's own. About a tenth of the time of threads without it, where all want the same core."""


def preparing_threads() -> ThreadPoolExecutor:
    """As many as asyncio's own; for `set_default_executor`."""
    workers = min(32, (os.cpu_count() or 1) + 4)
    return ThreadPoolExecutor(workers, thread_name_prefix="specserve-prepare", initializer=lower_priority)


def lower_priority() -> None:
    """Of the calling thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it: a pool whose threads raise here takes no work
            os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + NICE, 19))
