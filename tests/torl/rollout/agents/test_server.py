"""The address of an episode, as OpenAI's own client and programs without libraries find it."""

import asyncio
from typing import Any

import aiohttp
import openai
import pytest

from agent_programs import MODEL, TOOLS, agent_player, ask, begun, opened, played, result, turns, user
from chat_models import message
from scripted_engine import ScriptedEngine
from torl.base.types import Problem
from torl.rollout.agents.requests import RequestError

TURNS = [
    f"<think>two at once</think>{message('hermes', 'print(1)', 'print(2)')}",
    "It is \\boxed{3}.<|im_end|>",
]


# --- OpenAI's client --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_client_calls_tools_and_its_answers_are_one_trajectory(stream: bool) -> None:
    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            messages: list[Any] = [user(problem.question)]
            while True:
                reply = await (_streamed if stream else _whole)(client, messages)
                if not reply.get("tool_calls"):
                    return None
                assert reply["reasoning_content"] == "two at once"
                messages.append({"role": "assistant", **{name: reply[name] for name in ("content", "tool_calls")}})
                messages += [result(call, str(place)) for place, call in enumerate(reply["tool_calls"])]

    trajectory = await played(agent_player(MODEL, turns(*TURNS), play))
    assert trajectory.answer == "It is \\boxed{3}."
    assert not trajectory.branches
    assert [turn.text for turn in trajectory.turns] == [TURNS[0].removesuffix("<|im_end|>"), "It is \\boxed{3}."]
    assert [call.code for call in trajectory.tool_calls] == ["print(1)", "print(2)"]
    assert [call.outcome.text for call in trajectory.tool_calls] == ["0", "1"]
    assert int(trajectory.loss_mask_T.sum()) == sum(len(MODEL.ids(text)) for text in TURNS)


async def _whole(client: openai.AsyncOpenAI, messages: list[Any]) -> dict[str, Any]:
    reply = await client.chat.completions.create(model="any", messages=messages, tools=TOOLS)  # type: ignore[arg-type]
    assert reply.usage is not None
    assert reply.usage.completion_tokens > 0
    assert reply.choices[0].finish_reason == ("tool_calls" if reply.choices[0].message.tool_calls else "stop")
    return reply.choices[0].message.model_dump()


async def _streamed(client: openai.AsyncOpenAI, messages: list[Any]) -> dict[str, Any]:
    """The message as the client's own helper puts it together."""
    async with client.chat.completions.stream(model="any", messages=messages, tools=TOOLS) as stream:  # type: ignore[arg-type]
        reply = await stream.get_final_completion()
    return reply.choices[0].message.model_dump()


async def test_models_and_errors_match_openai_client() -> None:
    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            assert [each.id async for each in client.models.list()] == ["policy"]

            async def refused(**body: Any) -> openai.APIStatusError:
                with pytest.raises(openai.APIStatusError) as found:
                    await client.chat.completions.create(**{"model": "any", "messages": [user("?")], **body})
                return found.value

            assert (await refused(n=2)).param == "n"
            assert (await refused(logprobs=True)).param == "logprobs"
            assert (await refused(tool_choice="required")).param == "tool_choice"
            assert (await refused(messages=[])).param == "messages"
            image = [{"type": "image_url", "image_url": {"url": "data:"}}]
            assert (await refused(messages=[{"role": "user", "content": image}])).param == "messages[0].content"
            assert (await refused(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "f"}})).param == (
                "tool_choice"
            )
            assert (await refused(response_format={"type": "json_object"})).param == "response_format"
            assert (await refused(extra_body={"guided_regex": "a+"})).param == "guided_regex"
            custom = await refused(tools=[{"type": "custom", "custom": {"name": "f"}}])
            assert (custom.param, custom.type) == ("tools", "invalid_request_error")
            longer = await refused(messages=[user("much " * 1000)])
            assert isinstance(longer, openai.BadRequestError)
            assert longer.code == "context_length_exceeded"
            with pytest.raises(openai.NotFoundError):
                await client.embeddings.create(model="any", input="?")
            raw = await client.chat.completions.with_raw_response.create(
                model="any", messages=[{"role": "user", "content": "?"}], temperature=0.2, seed=1
            )
            assert raw.headers["x-torl-ignored"] == "temperature, seed"
            return "done"

    player = agent_player(MODEL, turns("Yes.<|im_end|>"), play, window=400)
    assert (await played(player)).answer == "done"
    assert player.metrics()["agent/refused"] == 10
    assert player.metrics()["agent/turns"] == 1


async def test_undecodable_body_is_refused_without_a_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(agent_player(MODEL, turns("4<|im_end|>"))) as player, aiohttp.ClientSession() as client:
        episode = begun(player)
        url = player.agents.server.open_episode(episode)
        for headers, status in (({}, 400), ({"Content-Encoding": "deflate"}, 415)):
            async with client.post(f"{url}/chat/completions", data=b"junk", headers=headers) as reply:
                assert reply.status == status
        await player.agents.server.close_episode(episode)
        episode.close()
    assert not episode.host_failure.done() or episode.host_failure.cancelled()
    assert not [record for record in caplog.records if record.name.startswith(("aiohttp", "torl"))]


async def test_stream_ends_with_usage_on_request_and_refusal_is_an_error() -> None:
    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            request: Any = {"model": "any", "messages": [{"role": "developer", "content": "Be brief."}, user("?")]}
            stream = await client.chat.completions.create(**request, stream=True, max_completion_tokens=2)
            chunks = [chunk async for chunk in stream]
            assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
            assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
            usage = {"include_usage": True}
            stream = await client.chat.completions.create(**request, stream=True, stream_options=usage)
            *chunks, last = [chunk async for chunk in stream]
            assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
            assert last.usage is not None
            assert (last.choices, last.usage.completion_tokens) == ([], len(MODEL.ids("one two<|im_end|>")))
            with pytest.raises(openai.BadRequestError, match="n can only be 1 here"):
                await client.chat.completions.create(**request, stream=True, n=2)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    trajectory = await played(agent_player(MODEL, turns(*["one two<|im_end|>"] * 2), play))
    assert trajectory.answer == "one two"
    assert MODEL.tokenizer.decode(trajectory.prompt.token_ids).startswith("<|endoftext|>system\nBe brief.")


async def test_token_limit_or_stop_string_ends_a_turn_and_continuation_closes_it() -> None:
    player = agent_player(MODEL, turns("one two three four five six"))
    episode = begun(player)
    first = await ask(episode, [user("?")], max_tokens=3)
    assert (first.finish_reason, first.sampled_tokens) == ("length", 3)
    second = await ask(episode, [user("?"), first.message, user("go on")], stop="four")
    assert second.finish_reason == "stop"
    assert second.message["content"] == "one two three "
    episode.close()
    trajectory = episode.trajectory("")
    assert trajectory is not None
    assert not trajectory.branches
    between = trajectory.token_ids_T[3 : trajectory.turns[1].start].tolist()
    assert MODEL.tokenizer.decode(between) == "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert trajectory.turns[1].text.endswith("four")


async def test_cancelled_request_leaves_its_message_to_the_next() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>", "and so on " * 50, "No.<|im_end|>"))
    episode = begun(player)
    first = await ask(episode, [user("?")])
    given_up = asyncio.ensure_future(ask(episode, [user("?"), first.message, user("go on")]))
    engine = player.engine
    assert isinstance(engine, ScriptedEngine)
    while not engine.open:
        await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await ask(episode, [user("?"), first.message, user("go on")])
    episode.close()
    trajectory = episode.trajectory("")
    assert trajectory is not None
    assert [turn.text for turn in trajectory.turns] == ["Yes.", "No."]
    assert not trajectory.branches


async def test_an_episode_has_so_many_turns() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"), max_turns=1)
    episode = begun(player)
    await ask(episode, [user("?")])
    with pytest.raises(RequestError, match=r"the 1 turns that rollout\.max_turns allows"):
        await ask(episode, [user("?")])
    episode.close()
