"""What went wrong on the way to a model of the hub, in a sentence each, and what to do. Knows the hub's errors by their
names, as its package is optional."""

from __future__ import annotations

WHY = {
    "GatedRepoError": (
        "its authors give access on request",
        "Ask for it on https://huggingface.co/{name}, then run `hf auth login` or set HF_TOKEN",
    ),
    "DisabledRepoError": ("the hub has disabled it", "Choose another model"),
    "RepositoryNotFoundError": (
        "the hub has no such model, or it is private",
        "Check the spelling; for a private model run `hf auth login` or set HF_TOKEN",
    ),
    "RevisionNotFoundError": ("the hub has no such revision of it", "Leave the revision out"),
    "LocalEntryNotFoundError": (
        "it was not downloaded before and the hub cannot be reached",
        "Check the network (and that HF_HUB_OFFLINE is not set), or pass the directory of a downloaded model",
    ),
    "OfflineModeIsEnabled": (
        "HF_HUB_OFFLINE is set, and it was not downloaded before",
        "Unset it, or pass the directory of a downloaded model",
    ),
    "HFValidationError": ("this is no name of the hub", "Pass org/name as the model's page has it"),
}
STATUS = {
    401: ("the hub asks who you are", "Run `hf auth login` or set HF_TOKEN"),
    403: ("the token may not read it", "Use a token that may read it"),
    404: WHY["RepositoryNotFoundError"],
    429: ("the hub has had too many requests", "Wait a few minutes; with a token more are allowed"),
}
DISK_FULL = 28
NETWORK = (
    "the hub cannot be reached",
    "Check the network, a proxy (HTTPS_PROXY) or a mirror (HF_ENDPOINT), or pass the directory of a downloaded model",
)


def hub_message(name: str, error: BaseException) -> str:
    """The whole error of a model `name` that could not be downloaded."""
    why, advice = reason(error)
    said = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    detail = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return (
        f"model {name!r} is not a directory here and cannot be downloaded: {why} ({detail}). "
        f"{advice.format(name=name)}."
    )


def reason(error: BaseException) -> tuple[str, str]:
    """Why, and what to do: by the error's class and those above it, then by what the hub answered."""
    for kind in type(error).__mro__:
        if kind.__name__ in WHY:
            return WHY[kind.__name__]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in STATUS:
        return STATUS[status]
    if isinstance(status, int):
        return f"the hub answered with status {status}", "Try again later"
    if isinstance(error, PermissionError):
        return "its files may not be written", "Make the cache writable, or set HF_HOME to another directory"
    if isinstance(error, OSError) and error.errno == DISK_FULL:
        return "the disk is full", "Free space, or set HF_HOME to a directory on another disk"
    return NETWORK
