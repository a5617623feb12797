"""Requests that are refused: path, body and the status that docs/server.md promises."""

from __future__ import annotations

from typing import Any

from soak.cases import CHAT, COMPLETIONS, MESSAGES, RESPONSES

USER = [{"role": "user", "content": "a"}]
WRONG: tuple[tuple[str, dict[str, Any] | bytes, int], ...] = (
    (COMPLETIONS, {}, 400),
    (COMPLETIONS, {"prompt": []}, 400),
    (COMPLETIONS, {"prompt": ["a", 1]}, 400),
    (COMPLETIONS, {"prompt": [-1]}, 400),
    (COMPLETIONS, {"prompt": [10**9]}, 400),
    (COMPLETIONS, {"prompt": ["a"] * 1025}, 400),
    (COMPLETIONS, {"prompt": "word " * 20000}, 400),
    (COMPLETIONS, {"prompt": "a", "n": 0}, 400),
    (COMPLETIONS, {"prompt": "a", "max_tokens": "many"}, 400),
    (COMPLETIONS, {"prompt": "a", "temperature": -1}, 400),
    (COMPLETIONS, {"prompt": "a", "top_p": 2}, 400),
    (COMPLETIONS, {"prompt": "a", "stop": ["x"] * 99}, 400),
    (COMPLETIONS, {"prompt": "a", "logprobs": 1001}, 400),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"x": 1}}, 400),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, 400),
    (COMPLETIONS, {"prompt": "a", "guided_regex": "("}, 400),
    (COMPLETIONS, {"prompt": "a", "stream": True, "speculation": {"max_draft_tokens": -1}}, 400),
    (COMPLETIONS, {"prompt": "a", "model": "nobody"}, 404),
    (COMPLETIONS, b"", 400),
    (COMPLETIONS, b"{", 400),
    (COMPLETIONS, b'{"prompt": "\xff"}', 400),
    (COMPLETIONS, b"[" * 100_000, 400),
    (COMPLETIONS, b'{"prompt": "' + b"a" * 2**20 + b'"}', 413),
    (CHAT, {"messages": []}, 400),
    (CHAT, {"messages": USER, "top_logprobs": 2}, 400),
    (CHAT, {"messages": USER, "tools": [{"type": "function"}]}, 400),
    (CHAT, {"messages": USER, "response_format": {"type": "yaml"}}, 400),
    (CHAT, {"messages": USER, "stream": True, "max_tokens": 0}, 400),
    (RESPONSES, {"input": "a", "previous_response_id": "resp_none"}, 404),
    (RESPONSES, {"input": "a", "background": True}, 400),
    (MESSAGES, {"messages": USER}, 400),
    (MESSAGES, {"messages": USER, "max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 5000}}, 400),
    ("/tokenize", {}, 400),
    ("/v1/nowhere", {}, 404),
    ("/health", {}, 405),
    ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "../outside"}, 403),
    ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "missing"}, 400),
    ("/v1/unload_lora_adapter", {"lora_name": "nobody"}, 404),
    ("/v1/ngram/corpora", {"name": "x"}, 400),
    ("/v1/ngram/corpora", {"name": "x", "path": "/etc/passwd"}, 403),
)
MAX_BODY_BYTES = 500_000
"""What the server is started with."""
MALFORMED = (
    b"NONSENSE\r\n\r\n",
    b"GET / HTTP/1.1\r\nA\x00: b\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
)
"""Bytes that are no HTTP: 400, or a closed connection."""
