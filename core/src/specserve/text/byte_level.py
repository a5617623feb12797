"""The bytes of single tokens: byte-level BPE and byte fallback write bytes that are not whole characters."""

from __future__ import annotations

import re

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE (GPT-2) writes for bytes: printable bytes as they are, the rest from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF = byte_alphabet()


def bytes_of_token(token: str) -> bytes | None:
    """The bytes of a token as the vocabulary spells it: `<0xE6>`, or characters of the byte alphabet."""
    if byte := BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(byte[1])
    if all(character in BYTE_OF for character in token):
        return bytes(BYTE_OF[character] for character in token)
    return None
