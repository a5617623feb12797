"""One static file as it is sent: read and compressed once, so that a request costs no more than sending its bytes."""

from __future__ import annotations

import gzip
from hashlib import sha256
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VALIDATORS = 16
"""ETags of If-None-Match that are looked at: browsers send one."""


class ServedFile:
    """`headers`: of every answer. A browser asks each time whether its copy is the newest (RFC 9111, no-cache)."""

    def __init__(self, content: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        self.content, self.compressed = content, gzip.compress(content, 9, mtime=0)
        self.etag = f'"{sha256(content).hexdigest()[:20]}"'
        self.headers = {
            **headers,
            hdrs.CONTENT_TYPE: f"{media_type}; charset=utf-8",
            hdrs.CACHE_CONTROL: "no-cache",
            hdrs.VARY: hdrs.ACCEPT_ENCODING,
        }

    async def serve(self, request: web.Request) -> web.Response:
        """A handler. 304 where the client has this file already."""
        is_packed = "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower()
        etag = f'{self.etag[:-1]}-gzip"' if is_packed else self.etag
        headers = {**self.headers, hdrs.ETAG: etag}
        if has_match(request.headers.get(hdrs.IF_NONE_MATCH, ""), etag):
            return web.Response(status=304, headers=headers)
        if is_packed:
            headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=self.compressed if is_packed else self.content, headers=headers)


def has_match(given: str, etag: str) -> bool:
    """By weak comparison (RFC 9110, section 13.1.2)."""
    validators = given.split(",", MAX_VALIDATORS)[:MAX_VALIDATORS]
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in validators)
