"""The environment "openenv" on real servers: ours, the library's own echo environment, and one that ends episodes."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import openenv
import pytest
from openenv.core.generic_client import GenericEnvClient

from builders import asked
from chat_models import ChatModel
from openenv_servers import serving
from scripted_environment import in_environment
from serving import run_server
from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.seeds import derive_seed
from torl.base.types import FinishReason, Problem, Prompt, Trajectory
from torl.components.interop.openenv import OpenEnvEnvironment, OpenEnvOptions
from torl_lab.audit.tokens import token_mismatch

NUMBER = Path(__file__).with_name("openenv_number.py")
SEED = derive_seed(0, 0, "p")


@pytest.fixture(scope="module")
def number() -> Iterator[str]:
    with serving(NUMBER) as (url, _):
        yield url


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The environment that the library's own command writes for a new project: it echoes."""
    directory = tmp_path_factory.mktemp("echo")
    template = Path(str(openenv.__file__)).parent / "cli" / "templates" / "openenv_env"
    names = {"__ENV_CLASS_NAME__": "Echo", "__ENV_TITLE_NAME__": "Echo", "__ENV_NAME__": "echo"}
    for name in ("models.py", "server/__ENV_NAME___environment.py"):
        text = (template / name).read_text()
        for old, new in names.items():
            text = text.replace(old, new)
        (directory / Path(name).name.replace("__ENV_NAME__", "echo")).write_text(text)
    program = directory / "serve.py"
    program.write_text(
        "import sys, uvicorn\nfrom echo_environment import EchoEnvironment\n"
        "from models import EchoAction, EchoObservation\n"
        "from openenv.core.env_server import create_fastapi_app\n"
        "app = create_fastapi_app(EchoEnvironment, EchoAction, EchoObservation, max_concurrent_envs=4)\n"
        "uvicorn.run(app, port=int(sys.argv[1]), log_level='error')\n"
    )
    with serving(program) as (url, _):
        yield url


def called(*guesses: Any) -> str:
    """A message of Qwen's that calls `guess` with each of these."""
    calls = [json.dumps({"name": "guess", "arguments": {"number": guess}}) for guess in guesses]
    return "".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls) + "<|im_end|>"


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl.components.environments.bounded._RESET_RETRIES", 0)


async def play(url: str, turns: Sequence[str], metadata: Mapping[str, Any] | None = None, **options: Any) -> Trajectory:
    """An episode of a model that writes these messages."""
    model = ChatModel.of("hermes")
    environment = OpenEnvEnvironment(OpenEnvOptions(openenv=url, **options))
    player = in_environment(model.player(turns), model, environment)
    prompt = Prompt(Problem("p", "Guess.", "", metadata or {}), asked().token_ids)
    played = await player.play(prompt, batch_id=0, sample=0)
    assert token_mismatch(played, model.rules(environment={"openenv": url, **options})) is None
    return played


async def played_by_the_library(
    url: str, actions: Sequence[Mapping[str, Any]], **reset: Any
) -> tuple[list[Any], float]:
    """The observations of the library's own loop over its own client, and the sum of its rewards."""
    observations, rewards = [], 0.0
    async with GenericEnvClient(base_url=url) as client:
        observations.append((await client.reset(**reset)).observation)
        for action in actions:
            result = await client.step(dict(action))
            observations.append(result.observation)
            rewards += result.reward or 0.0
            if result.done:
                break
    return observations, rewards


async def test_calls_are_actions_by_the_servers_own_schema_and_the_last_ends_the_episode(number: str) -> None:
    guesses = list(range(1, 10))
    observations, rewards = await played_by_the_library(number, [{"number": guess} for guess in guesses], seed=SEED)
    played = await play(number, [called(guess) for guess in guesses], tool="guess", visible_fields=["hint"])
    assert [call.outcome.text for call in played.tool_calls] == [each["hint"] for each in observations[1:]]
    assert played.environment_rewards == {"reward": rewards}
    assert played.finish_reason is FinishReason.ENVIRONMENT
    prompt = ChatModel.of("hermes").tokenizer.decode(played.prompt.token_ids)
    assert f"Guess.\n\n{observations[0]['hint']}" in prompt
    schema = OpenEnvEnvironment(OpenEnvOptions(openenv=number, tool="guess")).tools["guess"]
    assert list(schema.parameters["properties"]) == ["number"]
    assert schema.parameters["required"] == ["number"]


async def test_calls_of_a_message_are_ordered_steps_until_the_end(number: str) -> None:
    played = await play(
        number, [called(*range(1, 8))], tool="guess", visible_fields=["hint"], reset_arguments={"largest": 3}
    )
    hints = [call.outcome.text for call in played.tool_calls]
    last = hints.index("Right.")
    assert hints[:last] == ["Larger."] * last
    assert {call.outcome.error for call in played.tool_calls[last + 1 :]} == {"EpisodeOver"}
    assert played.environment_rewards == {"reward": 1.0 - 0.25 * last}


async def test_problem_may_have_no_reset_arguments(number: str) -> None:
    """Rows of a Parquet file have all columns, some of them null."""
    played = await play(number, [called(*range(1, 8))], {"reset": None}, tool="guess", visible_fields=["hint"])
    assert played.tool_calls[0].outcome.text in ("Larger.", "Right.")


async def test_invalid_action_arguments_are_reported_to_model(number: str) -> None:
    turns = [called("many"), called(*range(1, 8))]
    played = await play(number, turns, {"reset": {"largest": 1}}, tool="guess", visible_fields=["hint"])
    assert played.tool_calls[0].outcome.error == "InvalidAction"
    assert (played.tool_calls[1].outcome.text, played.environment_rewards) == ("Right.", {"reward": 1.0})


async def test_server_failure_fails_the_episode(number: str) -> None:
    with pytest.raises(ToolUnavailableError, match=r"failed in step\(Message\)\nRuntimeError: .*zero breaks it"):
        await play(number, [called(0)], tool="guess")
    with pytest.raises(ConfigError, match="no 'hints' in the observation: "):
        await play(number, [called(1)], tool="guess", visible_fields=["hints"])


async def test_messages_are_actions_of_the_librarys_echo_environment(echo: str) -> None:
    texts = ["Hello there.", "Again."]
    observations, rewards = await played_by_the_library(echo, [{"message": text} for text in texts], seed=SEED)
    played = await play(echo, [f"hm</think>{text}<|im_end|>" for text in texts] + ["cut"], text_field="message")
    expected = [json.dumps(each, separators=(",", ":")) for each in observations[1:]]
    assert [json.loads(each.text) for each in played.user_messages] == [json.loads(each) for each in expected]
    assert played.environment_rewards == {"reward": rewards}
    shown = await play(
        echo, ["hm</think>Yes.<|im_end|>", "cut"], text_field="message", visible_fields=["echoed_message"]
    )
    assert [each.text for each in shown.user_messages] == ["Yes."]


async def test_openenv_server_runs_code_of_each_message() -> None:
    options = ("--workers", "1", "--cpu-seconds", "20")
    with run_server(*options, command="openenv") as running:
        await_steps = ["x = 6<|im_end|>", "print(x * 7)<|im_end|>", "1 / 0<|im_end|>", "cut"]
        played = await play(running.url, await_steps, text_field="code", visible_fields=["stdout", "stderr"])
    texts = [each.text for each in played.user_messages]
    assert texts[:2] == ["", "42\n"]
    assert texts[2].endswith("ZeroDivisionError: division by zero\n")


async def test_an_episode_does_not_go_on_in_another_session_when_its_connection_is_lost() -> None:
    with serving(NUMBER) as (url, process):
        session = OpenEnvEnvironment(OpenEnvOptions(openenv=url, tool="guess")).session(Problem("p", "", ""), 1)
        await session.reset([{"role": "user", "content": ""}])
        process.terminate()
        process.wait(60)
        port = int(url.rpartition(":")[2])
        with serving(NUMBER, port):
            for _ in range(2):
                with pytest.raises(Exception, match=r"lost during the episode|no close frame|received 1|sent 1"):
                    await session._step({"number": 1})
            await session.close()


async def test_a_server_that_is_not_there_and_options_without_an_action_are_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ToolUnavailableError, match="returned no schema of actions"):
        _ = OpenEnvEnvironment(OpenEnvOptions(openenv=nobody, tool="guess")).tools
    with pytest.raises(ToolUnavailableError, match=r"(?s)the episode did not start in one attempt; .*ConnectionError"):
        await play(nobody, ["1<|im_end|>"], text_field="message")
    with pytest.raises(ConfigError, match="set one or both"):
        OpenEnvEnvironment(OpenEnvOptions(openenv=nobody))
