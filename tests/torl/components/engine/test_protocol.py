"""A custom engine: the example in the docstring of `Engine`, in a configuration, against a real server."""

import json
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from torl._core import StopCondition, Vocabulary
from torl.base.errors import EngineError
from torl.base.options import ChosenFrom
from torl.base.types import SamplingParameters, TurnRequest
from torl.components.engine import ENGINES, Engine, EngineSetup
from torl.components.engine.vllm.options import VllmOptions
from torl.components.weights.rendezvous import Rendezvous

CHOICE = ChosenFrom(ENGINES, "engine", "vllm", positional_count=1, bases=(Engine,))
TEXT = b"two\n```python\n1 + 1\n```output\n3"


class Server(BaseHTTPRequestHandler):
    """Says the same bytes, each of them a token, to every prompt."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = [*TEXT][: request["max_tokens"]]
        answer = {"token_ids": ids, "logprobs": [-0.5] * len(ids), "finish_reason": "length"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *arguments: object) -> None:
        """Not to the terminal."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> str:
    """The example as a module; returns its name."""
    assert Engine.__doc__ is not None
    example = Engine.__doc__.partition("import asyncio")[2].partition("[engine]")[0]
    module = ModuleType("example_of_an_engine")
    exec(textwrap.dedent(f"        import asyncio{example}"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


async def test_the_example_is_chosen_by_its_place_and_samples(package: str, url: str, tmp_path: Path) -> None:
    choice = CHOICE.choose({"name": f"{package}:RemoteEngine", "url": url})
    assert choice.options.dtype == "bfloat16"  # what every engine has
    vocabulary = Vocabulary([bytes([value]) for value in range(256)])
    engine: Engine = choice.make(EngineSetup(tmp_path, vocabulary, 64, (0,), tmp_path / "engine.log"))
    await engine.start()
    turns = [
        await engine.sample(TurnRequest("a", [1, 2], SamplingParameters(max_tokens), end, episode=3))
        for max_tokens, end in ((100, StopCondition.marker(b"```output")), (5, StopCondition.never()))
    ]
    assert [turn.finish_reason for turn in turns] == ["end", "length"]
    assert bytes(turns[0].token_ids) == TEXT[:-2]
    assert bytes(turns[1].token_ids) == TEXT[:5]
    assert all(len(turn.logprobs) == len(turn.token_ids) for turn in turns)
    engine.check()
    await engine.sleep()
    await engine.wake("weights")
    await engine.wake("cache")
    with pytest.raises(EngineError, match="RemoteEngine takes no new weights: it can sample and evaluate, but not"):
        await engine.receive_weights(Rendezvous("127.0.0.1", 1, 2), 1)
    await engine.close()


def test_the_engine_that_torl_ships_is_chosen_by_its_name() -> None:
    choice = CHOICE.choose({"on_weight_update": "keep", "tensor_parallel": 2})
    assert choice.options == VllmOptions(on_weight_update="keep", tensor_parallel=2)
    assert choice.options.keeps_stale_cache
    assert not VllmOptions().keeps_stale_cache
    with pytest.raises(ValueError, match="verify_weights"):
        CHOICE.choose({"verify_weights": True})


async def test_engines_that_are_not_started_say_so(tmp_path: Path) -> None:
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", policy_version=7)
    engine: Engine = CHOICE.choose({"replicas": 2, "tensor_parallel": 3}).make(setup)
    assert engine.policy_version == 7
    with pytest.raises(EngineError, match="start it first"):
        engine.check()
    with pytest.raises(EngineError, match="start it first"):
        await engine.select_receivers()
