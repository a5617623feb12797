"""The deployment that clients reach: it reads a request, has it answered, and passes the answer on as it comes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ray import serve

from specserve_ray.answering import Answering
from specserve_ray.asgi import ClientLeftError, add_slash, lacks_slash, read_request, run_lifespan, send_answer
from specserve_ray.changes_actor import find_changes

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from specserve_ray.asgi import AsgiApp, Receive, Scope, Send
    from specserve_ray.config import Configuration
    from specserve_server.config import ServerConfig


class IngressApp:
    """An ASGI application."""

    def __init__(self, answering: Answering, server: ServerConfig) -> None:
        self.answering, self.server = answering, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send)
            return
        if lacks_slash(scope, self.server.root_path):
            await add_slash(scope, send)
            return
        try:
            request = await read_request(scope, receive, self.server.root_path, self.server.max_body_bytes)
        except ClientLeftError:
            return
        async with aclosing(self.answering.answer(request)) as parts:
            await send_answer(send, parts)


@serve.ingress()
class Ingress:
    """Serve serves what it builds."""

    def __init__(self, replicas: DeploymentHandle, configuration: Configuration) -> None:
        app_name = serve.get_replica_context().app_name
        answering = Answering(replicas, find_changes(app_name), app_name, configuration)
        self.app_of_clients = IngressApp(answering, configuration.server)

    def __serve_build_asgi_app__(self) -> AsgiApp:
        return self.app_of_clients
