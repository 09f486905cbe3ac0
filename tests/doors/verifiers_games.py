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


class Halved(vf.Rubric):
    """Pays half of what its functions say."""

    async def score_rollout(self, state: Any) -> None:
        await super().score_rollout(state)
        state["reward"] /= 2


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
    if kind == "halved":
        given["rubric"] = Halved(funcs=[right, brief], weights=[1.0, 0.5])
    if kind == "twice":
        given["rubric"] = vf.RubricGroup([vf.Rubric(funcs=[right]), vf.Rubric(funcs=[right], weights=[0.5])])
    guessing = Guessing(max_turns=max_turns, **given)
    if kind == "group":
        once = vf.SingleTurnEnv(**{**given, "rubric": vf.Rubric(funcs=[brief], weights=[2.0])})
        return vf.EnvGroup([guessing, once], env_names=["many", "once"])
    return guessing
