"""The schema of every type that operations name: of Structs a reference, whose target is in `components`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from specserve_server.openapi.error_answers import error_type
from specserve_server.operation import JSON, Events, OneOfSubclasses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_server.operation import Operation

    Operations: TypeAlias = Mapping[str, Mapping[str, Operation]]
    """By path, and by method in small letters."""
    Schema: TypeAlias = dict[str, Any]
DESCRIBING = ("title", "description")


class Schemas:
    """A field that an operation requires is required in its body's schema, although the Struct lets it be missing: the
    handler says in better words what is missing."""

    def __init__(self, operations: Operations) -> None:
        bases = OneOfSubclasses.__subclasses__()
        kinds = [kind for base in bases for kind in base.__subclasses__()]
        types = list(dict.fromkeys([*types_of(operations), *bases, *kinds]))
        schemas, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._schemas: dict[object, Schema] = dict(zip(types, schemas, strict=True))
        for base in bases:
            self.components[self.name_of(base)] = self.one_of(base)
        for methods in operations.values():
            for operation in methods.values():
                if operation.body is not None:
                    require(self.components[self.name_of(operation.body)], operation)

    def name_of(self, struct: object) -> str:
        name: str = self._schemas[struct]["$ref"].rpartition("/")[2]
        return name

    def one_of(self, base: type[OneOfSubclasses]) -> Schema:
        """As msgspec describes a union of Structs with tags."""
        kinds = base.__subclasses__()
        types = {self.components[self.name_of(kind)]["properties"]["type"]["enum"][0]: kind for kind in kinds}
        mapping = {name: self._schemas[kind]["$ref"] for name, kind in types.items()}
        alternatives = [self._schemas[kind] for kind in kinds]
        described = {name: text for name, text in self.components[self.name_of(base)].items() if name in DESCRIBING}
        return {**described, "anyOf": alternatives, "discriminator": {"propertyName": "type", "mapping": mapping}}

    def of(self, type: object) -> Schema:
        if isinstance(type, Events):
            return event_schema(type, [self._schemas[event] for event in type.types])
        return self._schemas[type]


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


def event_schema(events: Events, types: list[Schema]) -> Schema:
    """Of each event of a stream: OpenAPI 3.1 has no other place for it."""
    data: Schema = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": types[0] if len(types) == 1 else {"anyOf": types},
    }
    fields: Schema = {"data": data if events.is_named else {"anyOf": [data, {"const": "[DONE]"}]}}
    if events.is_named:
        fields["event"] = {"type": "string", "description": "The type of its data"}
    return {"type": "object", "description": "An event", "properties": fields, "required": list(fields)}


def require(schema: Schema, operation: Operation) -> None:
    """Fields that must be there are not null either."""
    fields = schema["properties"]
    for name in operation.required:
        fields[name] = not_null(fields[name])
    schema["required"] = sorted({*schema["required"], *operation.required})
    if operation.one_of:
        schema["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in operation.one_of
        ]


def not_null(schema: Schema) -> Schema:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
