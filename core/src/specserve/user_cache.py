"""Where files are kept across starts, in the user's own cache."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """The directory `specserve/NAME` below $XDG_CACHE_HOME or ~/.cache; it may not be there yet. Raises OSError for a
    user without a home, as in containers that run with any user's number."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given) / "specserve" / name
    try:
        home = Path.home()
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "the user has no home directory, and XDG_CACHE_HOME is not set") from None
    return home / ".cache" / "specserve" / name
