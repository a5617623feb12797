"""What can be wrong with a corpus, by status.

RequestError
└── CorpusError              400  the name, the path or the text
    ├── UnknownCorpusError   404
    └── CorpusConflictError  409  the name is taken, or there are too many
"""

from __future__ import annotations

from specserve.errors import RequestError


class CorpusError(RequestError):
    """A corpus that cannot be loaded. Raised before loading it answers the client, while loading it is the reason
    that the corpus shows."""


class UnknownCorpusError(CorpusError):
    status = 404


class CorpusConflictError(CorpusError):
    status = 409
