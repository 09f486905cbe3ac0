"""The toolset for verifiers, sampled by that library's own loop: environment, tool server, chat program and reward."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.runtimes.subprocess import SubprocessRuntime


class Model(BaseHTTPRequestHandler):
    """A model that computes a part in one call, the rest in another, and answers with what the second printed."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = request["messages"]
        replies = [message["content"] for message in messages if message["role"] == "tool"]
        last = re.findall(r"\d+", str(messages[0]["content"]))[-1]
        if not replies:
            message = calling(f"numbers = range({last} + 1)")
        elif len(replies) == 1:
            message = calling("print(sum(numbers))")
        else:
            message = {"role": "assistant", "content": f"It is {replies[-1]}."}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        chunk = {
            "id": "1", "object": "chat.completion.chunk", "created": 0, "model": request["model"],
            "choices": [{"index": 0, "delta": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def calling(code: str) -> dict[str, Any]:
    function = {"name": "python", "arguments": json.dumps({"code": code})}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def installed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chat program runs in this environment, which has all it takes; verifiers would install one for it."""

    async def prepare(self: Any, script: str, env: Any = None, *, activate: bool = True) -> list[str]:
        await self.write("chat_program.py", script.encode())
        return [sys.executable, f"{self.workdir}/chat_program.py"]

    monkeypatch.setattr(SubprocessRuntime, "prepare_uv_script", prepare)


async def test_verifiers_loop_samples_rollouts_with_one_session_each(endpoint: str) -> None:
    seat = {"runtime": {"type": "subprocess"}}
    config = vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": "verifiers_sums"}, "agent": seat})
    env = vf.load_environment(config)
    client = vf.EvalClientConfig(base_url=endpoint, api_key_var="NO_KEY")
    context = vf.ModelContext(client=client, model="scripted", sampling=vf.SamplingConfig())
    async with env.serving():
        episodes = [await env.run_episode(task, context) for task in env.taskset]
    for episode, answer in zip(episodes, ("4950", "499500"), strict=True):
        assert episode.ok, (episode.errors, [trace.errors for trace in episode.traces])
        (trace,) = episode.traces
        messages = [node.message.content for node in trace.nodes if node.message.role == "tool"]
        assert messages == ["[no output]", answer]
        assert trace.reward == 1.0
    names = {episode.traces[0].state.python_session for episode in episodes}
    assert len(names) == 2
    assert None not in names
