"""Names that other programs have for models: addresses, tags, revisions; what to pass instead. Reads no file."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co", "hf-mirror.com")
HUB_NAME = r"[\w-][\w.-]*/[\w-][\w.-]*"
WITHOUT_SCHEME = re.compile(rf"({'|'.join(map(re.escape, HUB_HOSTS))})/", re.IGNORECASE)
REVISION = re.compile(rf"({HUB_NAME})@([\w./-]+)")
TAG = re.compile(rf"(?:({HUB_NAME})|[\w.-]+):([\w.-]+)")
DOWNLOAD = "Download it, and pass the directory"


def foreign_name(name: str) -> str:
    """What the name is and what to pass instead; empty where it is of no known kind."""
    if WITHOUT_SCHEME.match(name):
        name = f"https://{name}"
    parts = urlsplit(name) if "://" in name else None
    if parts is not None:
        return address(parts.scheme.lower(), parts.netloc.lower(), unquote(parts.path).strip("/"))
    if match := REVISION.fullmatch(name):
        hub, revision = match.groups()
        return (
            f"a revision cannot be named. Run `hf download {hub} --revision {revision}` and pass the directory that it "
            "prints"
        )
    if match := TAG.fullmatch(name):
        hub = match[1]
        other = f"Pass {hub} if it has *.safetensors" if hub else "Pass a hub id such as org/name-GGUF:Q4_K_M"
        kind = "are names of GGUF files, as of Ollama and llama.cpp, which the plugin gguf reads from the hub"
        return f"tags such as :{match[2]} {kind}. {other}"
    return ""


def address(scheme: str, host: str, path: str) -> str:
    """scheme, host and path of an address."""
    if scheme == "file":
        return f"it is an address. Pass the path alone: /{path}"
    if scheme == "hf":
        return hub_path(f"{host}/{path}".strip("/"))
    if scheme in ("http", "https"):
        return hub_path(path) if host in HUB_HOSTS else f"it is an address of {host}. {DOWNLOAD}"
    return f"addresses of {scheme}:// are not read. {DOWNLOAD}"


def hub_path(path: str) -> str:
    """path: behind the hub's host."""
    kind, _, rest = path.partition("/")
    if kind in ("datasets", "spaces"):
        return f"it is one of the hub's {kind}, {rest}, and not a model. Pass a model as org/name"
    parts = path.split("/")
    if len(parts) < 2:
        return "it is an address of the hub that names no model. Pass a model as org/name"
    hub, revision = "/".join(parts[:2]), parts[3] if len(parts) > 3 else "main"
    if revision != "main":
        return f"it is an address of the hub. Run `hf download {hub} --revision {revision}` and pass the directory"
    if path.lower().endswith(".gguf"):
        return f"it is the address of a GGUF file. Pass {hub}: and a part of its name, such as {hub}:Q4_K_M"
    return f"it is an address of the hub. Pass {hub}"
