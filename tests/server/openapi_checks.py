"""Answers checked against /openapi.json. Every field must be described: objects are closed for the check."""

from __future__ import annotations

import json
import re
from typing import Any

from jsonschema import Draft202012Validator


class Described:
    """A document, and which operations and statuses were checked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.closed = close(document)
        self.checked: set[tuple[str, str, int]] = set()

    def path_of(self, path: str) -> str:
        """The described path that this one is of; those without parameters first."""
        path = path.partition("?")[0]
        for known in sorted(self.document["paths"], key=lambda known: "{" in known):
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(known)), path):
                return str(known)
        raise AssertionError(f"{path} is not described")

    async def check(self, method: str, path: str, response: Any) -> Any:
        """The body, after it was compared with what is described for its status and media type."""
        known = self.path_of(path)
        answer = self.closed["paths"][known][method]["responses"][str(response.status)]
        assert all(name in response.headers for name in answer["headers"])
        self.checked.add((method, known, response.status))
        schema, text = answer["content"][response.content_type]["schema"], await response.text()
        if response.content_type == "text/event-stream":
            return self.check_events(schema, text)
        body = json.loads(text) if response.content_type == "application/json" else text
        self.validate(schema, body)
        return body

    def check_events(self, schema: dict[str, Any], text: str) -> list[Any]:
        """The data of the events; `jsonschema` checks no `contentSchema`."""
        *blocks, rest = text.split("\n\n")
        assert not rest
        events: list[dict[str, str]] = [dict(re.findall(r"(?m)^(\w+): (.*)$", block)) for block in blocks]
        data = schema["properties"]["data"]
        of_data = data.get("anyOf", [data])[0]["contentSchema"]
        found = []
        for event in events:
            self.validate(schema, event)
            if event["data"] != "[DONE]":
                found.append(json.loads(event["data"]))
                self.validate(of_data, found[-1])
        assert found
        return found

    def validate(self, schema: dict[str, Any], value: Any) -> None:
        Draft202012Validator({**schema, "components": self.closed["components"]}).validate(value)


def close(value: Any) -> Any:
    """Objects with known properties have no others."""
    if isinstance(value, list):
        return [close(each) for each in value]
    if not isinstance(value, dict):
        return value
    closed = {name: close(each) for name, each in value.items()}
    if value.get("type") == "object" and "properties" in value:
        closed.setdefault("additionalProperties", False)
    return closed
