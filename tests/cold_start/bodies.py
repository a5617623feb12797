"""First requests, one or more of every API: path and body."""

from __future__ import annotations

import json
from typing import Any

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TOKENIZE = "/tokenize"
SCHEMA = '{"type": "object", "properties": {"kind": {"enum": ["file", "folder"]}}, "required": ["kind"]}'
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "maxLength": 8}}, "required": ["path"]}
FUNCTION = {"name": "read_file", "description": "Reads a file.", "parameters": PARAMETERS}
USER = [{"role": "user", "content": "Which files are in this folder?"}]
FEW = {"max_tokens": 6, "temperature": 0.7, "seed": 3}
CHAT_FEW = FEW | {"messages": USER}
SHAPE = {"type": "json_schema", "json_schema": {"name": "entry", "schema": json.loads(SCHEMA)}}

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    (COMPLETIONS, FEW | {"prompt": "def add(a, b):", "logprobs": 2, "stop": ["\n\n"]}),
    (COMPLETIONS, FEW | {"prompt": [[1, 2, 3], [4, 5]], "n": 2, "repetition_penalty": 1.1, "logit_bias": {"5": -1}}),
    (COMPLETIONS, FEW | {"prompt": "class Point", "stream": True, "stream_options": {"include_usage": True}}),
    (CHAT, CHAT_FEW | {"top_k": 20, "top_logprobs": 2, "logprobs": True}),
    (CHAT, CHAT_FEW | {"tools": [{"type": "function", "function": FUNCTION}], "stream": True}),
    (CHAT, CHAT_FEW | {"response_format": SHAPE, "speculation": {"max_draft_tokens": 3}}),
    (MESSAGES, CHAT_FEW | {"system": [{"type": "text", "text": "Be short."}]}),
    (MESSAGES, CHAT_FEW | {"stream": True, "stop_sequences": ["end"]}),
    (RESPONSES, {"input": "Hello.", "max_output_tokens": 6}),
    (RESPONSES, {"input": USER, "instructions": "Be short.", "max_output_tokens": 6, "stream": True}),
    (RESPONSES, {"input": "Read it.", "tools": [{"type": "function", **FUNCTION}], "max_output_tokens": 6}),
    (TOKENIZE, {"messages": USER, "return_token_strs": True}),
)
BODIES = tuple((path, json.dumps(body).encode()) for path, body in REQUESTS)
