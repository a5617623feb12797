"""The OpenAPI document of operations: schemas from the Structs that decode the bodies and describe the answers.

A field that an operation requires is required in its body's schema, although the Struct lets it be missing: the handler
says in better words what is missing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from specserve import __version__
from specserve.server.openapi.error_answers import DESCRIPTIONS, error_statuses, error_type, headers_of
from specserve.server.openapi.operation import JSON, Answer, Events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve.json_types import JsonObject, JsonValue
    from specserve.server.openapi.operation import Operation

    Operations = Mapping[str, Mapping[str, Operation]]
UNDESCRIBED = (Answer(content={}, status="default", description="Not described"),)
REQUEST_ID = {"description": "The request's id, also in the log", "schema": {"type": "string"}}
RETRY_AFTER = {"description": "Seconds after which a retry may succeed", "schema": {"type": "integer"}}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
ABOUT = "Unknown fields of bodies are ignored. Another method than those of a path is answered with 405 and `Allow`."


def openapi_document(operations: Operations, *, root_path: str = "", needs_key: bool = False) -> JsonObject:
    """`operations` by path and by method in small letters; `needs_key`: whether the server has API keys."""
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


class Schemas:
    """The schema of every type that operations name; Structs are references to `components`."""

    def __init__(self, operations: Operations) -> None:
        types = list(dict.fromkeys(types_of(operations)))
        schemas, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._schemas: dict[object, JsonObject] = dict(zip(types, schemas, strict=True))
        for methods in operations.values():
            for operation in methods.values():
                if operation.body is not None:
                    require(self.components[self._schemas[operation.body]["$ref"].rpartition("/")[2]], operation)

    def of(self, type: object) -> JsonObject:
        if isinstance(type, Events):
            return event_schema(type, [self._schemas[event] for event in type.types])
        return self._schemas[type]


def event_schema(events: Events, types: list[JsonObject]) -> JsonObject:
    """Of each event of a stream: OpenAPI 3.1 has no other place for it."""
    data: JsonObject = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": types[0] if len(types) == 1 else {"anyOf": types},
    }
    fields: JsonObject = {"data": data if events.is_named else {"anyOf": [data, {"const": "[DONE]"}]}}
    if events.is_named:
        fields["event"] = {"type": "string", "description": "The type of its data"}
    return {"type": "object", "description": "An event", "properties": fields, "required": list(fields)}


def types_of(operations: Operations) -> Iterator[object]:
    for path, methods in operations.items():
        yield error_type(path)
        for operation in methods.values():
            if operation.body is not None:
                yield operation.body
            yield from operation.query.values()
            for answer in operation.answers:
                for type in answer.content.values():
                    yield from type.types if isinstance(type, Events) else [type]


def require(schema: JsonObject, operation: Operation) -> None:
    """Fields that must be there are not null either."""
    fields = schema["properties"]
    for name in operation.required:
        fields[name] = not_null(fields[name])
    schema["required"] = sorted({*schema["required"], *operation.required})
    if operation.one_of:
        schema["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in operation.one_of
        ]


def not_null(schema: JsonObject) -> JsonObject:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


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


def describe_body(schemas: Schemas, operation: Operation) -> JsonObject:
    example = {} if operation.example is None else {"example": operation.example}
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
