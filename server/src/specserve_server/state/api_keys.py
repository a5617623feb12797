"""The API keys of a server: those of the configuration, and those of a file that may be read again.

Owns the comparison. Knows nothing about HTTP.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from specserve_server.state.key_file import NamedKey, read_key_file

if TYPE_CHECKING:
    from specserve_server.config import ServerConfig


class ApiKeys:
    """Raises ConfigError where the file is wrong."""

    def __init__(self, config: ServerConfig) -> None:
        self._configured = [NamedKey(f"key-{number}", key) for number, key in enumerate(config.api_keys, 1)]
        self._file = None if config.api_key_file is None else Path(config.api_key_file)
        self._digests: dict[bytes, str] = {}
        self.reload()

    @property
    def required(self) -> bool:
        """False where no key is configured: everybody is served."""
        return bool(self._digests)

    def reload(self) -> None:
        """Read the file again. A ConfigError leaves the keys as they are."""
        from_file = [] if self._file is None else read_key_file(self._file)
        self._digests = {digest(key): name for name, key in [*self._configured, *from_file]}

    def name_of(self, given: str) -> str | None:
        """The name of a valid key, else None. Takes as long for every key of one length: all digests are compared."""
        wanted = digest(given)
        names = [name for known, name in self._digests.items() if hmac.compare_digest(known, wanted)]
        return names[0] if names else None


def digest(key: str) -> bytes:
    """Of one length for all keys. Headers may have bytes that are not UTF-8."""
    return sha256(key.encode(errors="surrogateescape")).digest()
