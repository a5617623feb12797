"""The exit codes of a command, and how the error that ends it is printed: as one line on standard error."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from specserve.announcements import announce_failure
from specserve.errors import ConfigError, RequestError, SpecserveError

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_FAILED, EXIT_CONFIG, EXIT_INTERRUPTED = 1, 2, 130


def run_command(run: Callable[[], int]) -> int:
    """0 is success, 1 a failure or a negative answer, 2 a configuration or a prompt that cannot be served."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the locale may lack a character
    try:
        return run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except SpecserveError as error:
        announce_failure(" ".join(str(error).split()))
        return EXIT_CONFIG if isinstance(error, ConfigError | RequestError) else EXIT_FAILED
