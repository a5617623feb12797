"""API keys: where they come from, how they are sent, and how a file of them is read again."""

from __future__ import annotations

import hmac
import os
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from patience import until
from serve_task import Server, stop

from specserve.errors import ConfigError
from specserve_server.config import ServerConfig
from specserve_server.state.api_keys import ApiKeys
from specserve_server.state.key_file import read_key_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fake_engine import FakeEngine


def test_a_file_has_keys_with_and_without_names(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n\nplain:key=1\n  team-a   sk-1 \nteam-a sk-2\n")
    assert read_key_file(file) == [("line-3", "plain:key=1"), ("team-a", "sk-1"), ("team-a", "sk-2")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# nothing\n\n", "has no key"),
        (b"good\na b secret\n", "line 2 of .* is neither"),
        (b"team/a secret\n", "line 1 of .* is neither"),
        (b"one secret\nsecret\n", "has a key twice"),
        (b"\xff\xfe\n", "not UTF-8"),
    ],
)
def test_a_wrong_file_is_an_error_that_shows_no_key(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        ApiKeys(ServerConfig(api_key_file=str(file)))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"api_key_file: {tmp_path}/none is not readable"):
        ApiKeys(ServerConfig(api_key_file=f"{tmp_path}/none"))


@pytest.mark.parametrize("keys", [(), ("good", ""), ("good", "bad ")])
def test_keys_that_no_client_could_send_are_refused(keys: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="api_key must not be empty"):
        ServerConfig(api_key=keys)


def test_a_key_is_compared_with_all_keys_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ApiKeys(ServerConfig(api_key=("a", "b", "c")))
    compared: list[bool] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(compare(one, other)) or compared[-1])
    assert [keys.name_of(key) for key in ("a", "c", "d")] == ["key-1", "key-3", None]
    assert compared == [True, False, False, False, False, True, False, False, False]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer two"},
        {"x-api-key": "two"},
        {"X-Api-Key": "one"},
        {"x-api-key": "two", "Authorization": "Basic for-a-proxy"},
        {"x-api-key": "wrong", "Authorization": "Bearer one"},
    ],
)
async def test_each_key_is_taken_from_either_header(connect: Any, engine: FakeEngine, headers: dict[str, str]) -> None:
    client = await connect(engine, api_key=("one", "two"))
    assert (await client.get("/v1/models", headers=headers)).status == 200


@pytest.mark.parametrize("headers", [{}, {"x-api-key": ""}, {"x-api-key": "on"}, {"Authorization": "Bearer one two"}])
async def test_other_keys_are_refused(connect: Any, engine: FakeEngine, headers: dict[str, str]) -> None:
    client = await connect(engine, api_key=("one", "two"))
    response = await client.get("/v1/models", headers=headers)
    assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")


async def status_with(url: str, key: str) -> int:
    path, headers = f"{url}/v1/models", {"x-api-key": key}
    async with aiohttp.ClientSession() as session, session.get(path, headers=headers) as response:
        return response.status


async def test_a_hangup_reads_the_file_again_and_a_broken_file_changes_nothing(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("old\n")
    server = Server(engine, capsys, api_key="fixed", api_key_file=str(file))
    url = await server.url()

    async def statuses_after(content: str, told: Callable[[], bool]) -> list[int]:
        file.write_text(content)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(told)
        return [await status_with(url, key) for key in ("fixed", "old", "new")]

    def was_read() -> bool:
        return "the API keys were read again" in capsys.readouterr().err

    def was_refused() -> bool:
        return "the API keys stay as they were: api_key_file: line 1" in caplog.text

    assert await statuses_after("new\n", was_read) == [200, 401, 200]
    assert await statuses_after("three words here\n", was_refused) == [200, 401, 200]
    assert await statuses_after("old\nnew\n", was_read) == [200, 200, 200]
    await stop(server)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


async def test_without_a_file_a_hangup_keeps_its_default_effect(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(engine, capsys, api_key="k")
    await server.url()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    await stop(server)
