"""The errors of corpora, with their HTTP status.

RequestError
└── CorpusError              400  the name, the path or the text
    ├── UnknownCorpusError   404
    └── CorpusConflictError  409  the name is taken, or there are too many
"""

from __future__ import annotations

from specserve.api import RequestError


class CorpusError(RequestError):
    """A corpus that cannot be loaded. Before loading it is the answer to the client, later the corpus's `reason`."""


class UnknownCorpusError(CorpusError):
    """No corpus has this name."""

    status = 404


class CorpusConflictError(CorpusError):
    """A corpus has this name already, or there are too many."""

    status = 409
