"""Environments of verifiers' classic kinds, as a package of one gives them: `load_environment`."""

from typing import Any

import verifiers as vf
from datasets import Dataset


def right(completion: Any, answer: str) -> float:
    return float(any(message["role"] == "assistant" and message["content"] == answer for message in completion))


def brief(completion: Any) -> float:
    return 1.0 / len(completion)


async def larger(number: int) -> str:
    """Whether the number to be guessed is larger.

    Args:
        number: a guess.
    """
    if number < 0:
        raise ValueError("no such number")
    return "yes" if number < 5 else "no"


class Guessing(vf.MultiTurnEnv):
    """The user says whether a guess is right, and ends the rollout when it is."""

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        said = messages[-1].content
        if said == "break":
            raise vf.InfraError("the table broke")
        if said == state["answer"]:
            state["final_env_response"] = [{"role": "user", "content": "Yes!"}]
            return state["final_env_response"]
        return [{"role": "user", "content": f"Not {said}."}, {"role": "user", "content": "Again."}]


def load_environment(kind: str = "multi", max_turns: int = 4) -> vf.Environment:
    rows = [{"question": f"Guess, {name}.", "answer": "5"} for name in ("Ann", "Ben")]
    given: dict[str, Any] = {
        "dataset": Dataset.from_list(rows),
        "system_prompt": "Be brief.",
        "rubric": vf.Rubric(funcs=[right, brief], weights=[1.0, 0.5]),
    }
    if kind == "single":
        return vf.SingleTurnEnv(**given)
    if kind == "tools":
        return vf.ToolEnv(tools=[larger], max_turns=max_turns, **given)
    return Guessing(max_turns=max_turns, **given)
