"""A JSON body as an HTTP response, encoded by msgspec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_checks.json_types import JsonValue


def json_response(body: JsonValue, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )
