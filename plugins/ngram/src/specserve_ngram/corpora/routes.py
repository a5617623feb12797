"""The routes of corpora. Errors are raised: the server's middleware turns them into responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import msgspec
from aiohttp import web

from specserve_ngram.corpora.documents import Documents
from specserve_ngram.corpora.errors import CorpusError
from specserve_ngram.corpora.paths import client_source
from specserve_ngram.corpora.store import CorpusStatus
from specserve_server.operation import JSON, Answer, Operation, describe
from specserve_server.wire.decode_body import decode_body
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_ngram.corpora.documents import Source
    from specserve_ngram.corpora.store import CorpusStore, Tokenizer

PATH = "/v1/ngram/corpora"


class CorpusBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/ngram/corpora: a name, and either a path or documents."""

    name: str | None = None
    path: str | None = None
    documents: list[str] | None = None


class CorpusList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"]
    data: list[CorpusStatus]


class CorpusDeleted(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    deleted: bool


class CorpusRoutes:
    """Reading files and freeing corpora run in threads, so that they do not block the event loop."""

    def __init__(self, store: CorpusStore, root: Path | None, tokenizer: Tokenizer) -> None:
        self.store, self.root, self.tokenizer = store, root, tokenizer

    def add_to(self, app: web.Application) -> None:
        app.add_routes(
            [
                web.post(PATH, self.create),
                web.get(PATH, self.show_all),
                web.get(PATH + "/{name}", self.show),
                web.delete(PATH + "/{name}", self.delete),
            ]
        )
        app.on_cleanup.append(self.close)

    @describe(
        Operation(
            summary="Begin to load a corpus",
            tag="corpora",
            body=CorpusBody,
            required=("name",),
            one_of=("path", "documents"),
            example={"name": "letters", "documents": ["Dear Sir or Madam, "]},
            answers=(Answer(content={JSON: CorpusStatus}, status=202, description="It is being loaded"),),
            errors=(403, 409),
        )
    )
    async def create(self, request: web.Request) -> web.Response:
        body = decode_body(await request.read(), CorpusBody)
        if body.name is None:
            raise CorpusError("name is required.", param="name")
        source = await asyncio.to_thread(self.find_source, body)
        status = self.store.add(body.name, source, self.tokenizer)
        return json_response(status, status=202, headers={"Location": f"{PATH}/{body.name}"})

    def find_source(self, body: CorpusBody) -> Source:
        if (body.path is None) == (body.documents is None):
            got = "neither" if body.path is None else "both"
            raise CorpusError(f"give either path or documents; got {got}.", param="path")
        if body.path is not None:
            return client_source(body.path, self.root)
        assert body.documents is not None
        if not any(body.documents):
            raise CorpusError("documents has no text.", param="documents")
        return Documents(body.documents)

    @describe(
        Operation(summary="The corpora and their states", tag="corpora", answers=(Answer(content={JSON: CorpusList}),))
    )
    async def show_all(self, request: web.Request) -> web.Response:
        return json_response({"object": "list", "data": self.store.all()})

    @describe(
        Operation(summary="One of them", tag="corpora", answers=(Answer(content={JSON: CorpusStatus}),), errors=(404,))
    )
    async def show(self, request: web.Request) -> web.Response:
        return json_response(self.store.get(request.match_info["name"]))

    @describe(
        Operation(summary="Forget it", tag="corpora", answers=(Answer(content={JSON: CorpusDeleted}),), errors=(404,))
    )
    async def delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await asyncio.to_thread(self.store.remove, name)
        return json_response({"name": name, "deleted": True})

    async def close(self, app: web.Application) -> None:
        await asyncio.to_thread(self.store.close)
