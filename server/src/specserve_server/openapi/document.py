"""The OpenAPI document of operations. Knows nothing about which ones there are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve import __version__
from specserve_server.openapi.error_answers import DESCRIPTIONS, error_statuses, error_type, headers_of
from specserve_server.openapi.schemas import Schemas
from specserve_server.operation import JSON, Answer

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject, JsonValue
    from specserve_server.openapi.schemas import Operations, Schema
    from specserve_server.operation import Operation
UNDESCRIBED = (Answer(content={}, status="default", description="Not described"),)
REQUEST_ID: JsonObject = {"description": "The request's id, also in the log", "schema": {"type": "string"}}
RETRY_AFTER: JsonObject = {"description": "Seconds after which a retry may succeed", "schema": {"type": "integer"}}
SECURITY_SCHEMES: JsonObject = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
ABOUT = "Unknown fields of bodies are ignored. Another method than those of a path is answered with 405 and `Allow`."


def openapi_document(operations: Operations, *, root_path: str = "", needs_key: bool = False) -> JsonObject:
    """`needs_key`: whether the server has API keys."""
    schemas = Schemas(operations)
    paths: dict[str, JsonObject] = {
        path: {
            method: describe_operation(schemas, path, method, operation, needs_key=needs_key)
            for method, operation in methods.items()
        }
        for path, methods in operations.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "specserve", "version": __version__, "description": ABOUT},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "headers": {"X-Request-Id": REQUEST_ID, "Retry-After": RETRY_AFTER},
            "securitySchemes": SECURITY_SCHEMES if needs_key else {},
        },
        "security": [{name: []} for name in SECURITY_SCHEMES] if needs_key else [],
    }


def describe_operation(
    schemas: Schemas, path: str, method: str, operation: Operation, *, needs_key: bool
) -> JsonObject:
    errors = error_statuses(method, operation, needs_key=needs_key)
    described: JsonObject = {
        "summary": operation.summary,
        "tags": [operation.tag],
        "operationId": "_".join([method, *re.findall(r"\w+", path)]),
        "parameters": [*path_parameters(path), *query_parameters(schemas, operation)],
        "responses": {
            **{str(answer.status): describe_answer(schemas, answer) for answer in operation.answers or UNDESCRIBED},
            **{str(status): describe_error(schemas, path, status) for status in errors},
        },
    }
    if operation.is_public:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = describe_body(schemas, operation)
    return described


def describe_body(schemas: Schemas, operation: Operation) -> Schema:
    example: Schema = {} if operation.example is None else {"example": operation.example}
    return {"required": True, "content": {JSON: {"schema": schemas.of(operation.body), **example}}}


def path_parameters(path: str) -> list[JsonValue]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def query_parameters(schemas: Schemas, operation: Operation) -> list[JsonValue]:
    return [{"name": name, "in": "query", "schema": schemas.of(type)} for name, type in operation.query.items()]


def describe_answer(schemas: Schemas, answer: Answer) -> JsonObject:
    content = {media_type: {"schema": schemas.of(type)} for media_type, type in answer.content.items()}
    return {"description": answer.description, "headers": headers_of(answer.status), "content": content}


def describe_error(schemas: Schemas, path: str, status: int) -> JsonObject:
    content = {JSON: {"schema": schemas.of(error_type(path))}}
    return {"description": DESCRIPTIONS[status], "headers": headers_of(status), "content": content}
