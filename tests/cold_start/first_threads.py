"""A fresh process in which eight threads prepare first requests of all APIs at once.

`python -m cold_start.first_threads FORM MODEL_DIR SEED`. The application is made as the server makes it, over an engine
that generates nothing, in a form of `both_forms.FORMS`: called directly, or over a socket, where both ends are in this
process and the threads ask whatever the server asks. Structured output is compiled and followed in the same threads,
and a checkpoint is opened, as an adapter is while requests run.
"""

from __future__ import annotations

import asyncio
import faulthandler
import random
import sys
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[1] / "server"))
from fake_engine import FakeEngine
from safetensors import safe_open

from both_forms import over_a_socket
from cold_start.bodies import BODIES, CHAT, COMPLETIONS, MESSAGES, RESPONSES, SCHEMA, TOKENIZE
from specserve.protocols import Metric
from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest, StructuredOutput
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_server.app.application import make_app
from specserve_server.bodies.messages import MessagesBody
from specserve_server.bodies.requests import ChatBody, CompletionBody, TokenizeBody
from specserve_server.bodies.responses import ResponsesBody
from specserve_server.chat import serving as serving_chat
from specserve_server.completions import serving as serving_completion
from specserve_server.config import ServerConfig
from specserve_server.engines.in_process import attach_in_process
from specserve_server.messages import serving as messages
from specserve_server.operations import tokenization
from specserve_server.responses import serving as responses
from specserve_server.wire.decode_body import decode_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREADS = 8
SWITCH_SECONDS = 1e-6
"""Between two threads: as short as the interpreter allows, so that they meet within what is built first."""


async def main(form: str, model: Path, seed: int) -> None:
    faulthandler.enable()
    fake: Any = FakeEngine(HfTokenizer.from_dir(model), output_kinds=frozenset({"json_schema", "structural_tag"}))
    fake.observed = [Metric("a", "what it counts", "gauge", 1.0)]
    config = ServerConfig()
    async with AsyncExitStack() as stack:
        if form == "socket":
            served = await stack.enter_async_context(over_a_socket(fake, config))
        else:
            served = await attach_in_process(fake, config)
        stack.push_async_callback(served.routes.close)
        make_app(served, config)
        engine: Any = served.client
        grammars = Grammars(load_tokenizer(model, engine.tokenizer.vocab_size, (7,)), GrammarOptions())
        actions = [*(partial(prepare, engine, path, body) for path, body in BODIES)]
        actions += [partial(follow_grammar, grammars), partial(open_checkpoint, model), partial(ask, engine)]
        errors = await asyncio.to_thread(run_at_once, actions, random.Random(seed))
    if errors:
        raise errors[0]


def run_at_once(actions: Sequence[Callable[[], object]], rng: random.Random) -> list[Exception]:
    """Every thread does all of them, each in an order of its own."""
    barrier, errors = threading.Barrier(THREADS), list[Exception]()

    def run(order: Sequence[Callable[[], object]]) -> None:
        barrier.wait()
        for action in order:
            try:
                action()
            except Exception as error:  # told by the main thread
                errors.append(error)

    threads = [threading.Thread(target=run, args=(rng.sample(actions, len(actions)),)) for _ in range(THREADS)]
    sys.setswitchinterval(SWITCH_SECONDS)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def prepare(engine: Any, path: str, data: bytes) -> object:
    """What the server does with a body before the engine has the request."""
    if path == TOKENIZE:
        return tokenization.tokenize_response(engine, decode_body(data, TokenizeBody))
    if path == RESPONSES:
        body = decode_body(data, ResponsesBody)
        return responses.prepare_answer(engine, body, "demo", "", history=(), keep=lambda *_: None)
    if path == MESSAGES:
        return messages.prepare_answer(engine, decode_body(data, MessagesBody), "demo", "")
    if path == CHAT:
        return serving_chat.prepare_request(engine, decode_body(data, ChatBody), "demo", "")
    assert path == COMPLETIONS
    return serving_completion.prepare_request(engine, decode_body(data, CompletionBody), "demo", "")


def ask(engine: Any) -> None:
    """What else the server asks of the engine: over a socket these are calls."""
    request = GenerateRequest(request_id="first", prompt_token_ids=(1, 2, 3))
    engine.check(request)
    assert engine.resolve_model("none").model is None
    assert engine.list_models() == engine.check_answer(request, "text", "stop") == []
    assert engine.read_state().observer_metrics


def follow_grammar(grammars: Grammars) -> None:
    matcher = grammars.matcher(StructuredOutput(kind="json_schema", text=SCHEMA))
    for token in grammars.tokenizer.tokenize_str('{"kind": "file"}'):
        assert matcher.consume_token(token)
    assert matcher.is_accepting()


def open_checkpoint(model: Path) -> None:
    with safe_open(str(model / "model.safetensors"), "np") as file:
        for name in file.keys():  # noqa: SIM118
            file.get_tensor(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
