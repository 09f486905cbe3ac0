"""Laws of a program's changes to its history: sampled tokens are kept, learned from once, and rendered never."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_programs import TOOLS, agent_player, ask, begun, result, user
from chat_models import FAMILIES, ChatModel, message
from scripted_engine import ScriptedEngine
from torl.base.types import Trajectory
from torl.rollout.agents.episode import AgentEpisode
from torl_lab.audit.tokens import agent_mismatch

MODELS = {family: ChatModel.of(family) for family in FAMILIES}
TEXTS = st.sampled_from(
    ["", "yes", "  no \n", "<|im_end|>", "42 <think>hm</think>", "größe 🙂", "<tool_call>", "\\boxed{1}"]
)
# What the model samples: words, calls, a call that is cut, thinking, a message without an end.
SAMPLED = st.sampled_from(["words", "call", "two", "cut", "thought", "endless"])
# What the program does next: continues, answers half of the calls, begins anew, goes back to any earlier state, changes
# a message, asks for the same again, asks twice at once.
MOVES = st.sampled_from(["go on", "half", "restart", "go back", "edit", "again", "twice"])
MANGLES = st.sampled_from(["as told", "null content", "spaces", "no thoughts", "other ids", "parts"])


def sampled(family: str, kind: str, number: int) -> str:
    """The text of the engine's turn."""
    end = MODELS[family].end
    match kind:
        case "call":
            return message(family, f"print({number})", said=f"I call {number}.")
        case "two":
            return (
                message(family, f"a = {number}", "b = 2")
                if family not in ("llama3", "harmony")
                else f"no {number}{end}"
            )
        case "cut":
            return message(family, "print(1)", said="I")[:-25]
        case "thought":
            return f"<think>hm {number}</think>So {number}{end}"
        case "endless":
            return f"and {number} " * 30
    return f"It is {number}. {end}"


def mangled(told: dict[str, Any], how: str) -> dict[str, Any]:
    """A message as a program may send it back, which means the same."""
    sent = json.loads(json.dumps(told))
    match how:
        case "null content" if not sent["content"]:
            sent["content"] = None
        case "spaces":
            for call in sent.get("tool_calls", []):
                call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=3)
            sent["content"] = f" {sent['content']}\n" if sent["content"] else sent["content"]
        case "no thoughts":
            sent.pop("reasoning_content", None)
            sent |= {"refusal": None, "audio": None}
        case "parts" if sent["content"]:
            sent["content"] = [{"type": "text", "text": sent["content"]}]
    return sent


class Program:
    """Plays at random, and remembers the tokens of each state of its history."""

    def __init__(self, episode: AgentEpisode, engine: ScriptedEngine, tools: Sequence[Any]) -> None:
        self.episode, self.engine, self.tools = episode, engine, tools
        self.states: list[tuple[list[dict[str, Any]], list[int]]] = []
        self.told: list[tuple[Any, ...]] = []  # what the last message of each state says

    async def turn(self, messages: list[dict[str, Any]], prefix: Sequence[int] = (), mangle: str = "as told") -> None:
        before = set(self.engine.requests)
        completion = await ask(self.episode, messages, tools=self.tools, max_tokens=40)
        request = next(each for name, each in self.engine.requests.items() if name not in before)
        # Two messages may read the same and be different tokens: either is the one that was sampled.
        text = next((sent for sent, (_, tokens) in zip(self.told, self.states, strict=True) if tokens == prefix), None)
        same = [tokens for sent, (_, tokens) in zip(self.told, self.states, strict=True) if sent == text]
        assert not prefix or any(request.token_ids[: len(each)] == each for each in same), "sampled text was rendered"
        state = [*messages, mangled(dict(completion.message), mangle)]
        calls = [call["function"] for call in completion.message.get("tool_calls", ())]
        self.told.append((completion.message["content"], calls))
        self.states.append((state, [*request.token_ids, *request.emitted]))

    async def move(self, move: str, text: str, place: int, mangle: str) -> None:
        if not self.states or move == "restart":
            await self.turn([{"role": "developer", "content": text}, user(f"{place}?")], mangle=mangle)
            return
        state, tokens = self.states[place % len(self.states) if move in ("go back", "edit") else -1]
        calls = state[-1].get("tool_calls", [])
        if mangle == "other ids":
            for number, call in enumerate(calls):
                call["id"] = f"x{number}"
        answers = [result(call, f"{text}{number}") for number, call in enumerate(calls)][::-1]
        if move == "half":
            answers = answers[:1]
        following = [*state, *answers, *([] if answers and place % 2 else [user(text)])]
        match move:
            case "edit":
                changed = [
                    {**each, "content": f"edited {place}"} if each["role"] == "assistant" else each
                    for each in following
                ]
                await self.turn(changed, mangle=mangle)
            case "again":
                await self.turn(state[:-1], mangle=mangle)
            case "twice":
                both = [ask(self.episode, following, tools=self.tools, max_tokens=40) for _ in range(2)]
                for reply in await asyncio.gather(*both):
                    assert reply.prompt_tokens > len(tokens)
            case _:
                await self.turn(following, tokens, mangle)


async def play(
    family: str, script: Sequence[str], moves: Sequence[tuple[str, str, int, str]]
) -> tuple[ScriptedEngine, Trajectory]:
    model = MODELS[family]

    def sample(name: str) -> list[int]:
        number = int(name.rpartition("/")[2])
        return model.ids(sampled(family, script[number % len(script)], number))

    playing = agent_player(model, sample, version=lambda name: int(name.rpartition("/")[2]) // 2)
    engine = playing.engine
    assert isinstance(engine, ScriptedEngine)
    episode = begun(playing)
    program = Program(episode, engine, TOOLS)
    for move in moves:
        await program.move(*move)
    episode.close()
    trajectory = episode.trajectory("done")
    assert trajectory is not None
    return engine, trajectory


@given(st.data())
@settings(deadline=None)
def test_every_sampled_token_is_trained_once_after_its_engine_prefix(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(FAMILIES))
    script = data.draw(st.lists(SAMPLED, min_size=1, max_size=5))
    moves = data.draw(st.lists(st.tuples(MOVES, TEXTS, st.integers(0, 9), MANGLES), min_size=1, max_size=6))
    engine, trajectory = asyncio.run(play(family, script, moves))
    rules = MODELS[family].rules()
    found = []
    for each in trajectory.episode_trajectories:
        assert agent_mismatch(each, rules) is None
        ids = [*each.prompt.token_ids, *each.token_ids_T.tolist()]
        first = len(each.prompt.token_ids)
        inside = sorted(place for turn in each.turns for place in range(turn.start, turn.stop))
        assert each.loss_mask_T.nonzero()[0].tolist() == inside
        assert not each.rollout_logprobs_T[~each.loss_mask_T].any()
        for turn in each.turns:
            places = slice(turn.start, turn.stop)
            found.append(
                (
                    ids[: first + turn.start],
                    ids[first + turn.start : first + turn.stop],
                    each.rollout_logprobs_T[places].tolist(),
                    set(each.policy_versions_T[places].tolist()),
                )
            )
    asked_for = [
        (request.token_ids, request.emitted, request.logprobs, {request.version})
        for request in engine.requests.values()
    ]
    assert sorted(found, key=repr) == sorted(asked_for, key=repr)
