"""The control experiment: calls are made, and answered with what calls of other problems gave."""

from scripted_engine import ScriptedInterpreter
from torl.components.tools import PythonTool, ShuffledTool


def shuffled(interpreter: ScriptedInterpreter | None = None, seed: int = 0) -> ShuffledTool:
    return ShuffledTool(PythonTool(interpreter=interpreter or ScriptedInterpreter()), seed)


async def test_an_outcome_is_that_of_another_problem() -> None:
    interpreter = ScriptedInterpreter()
    tool = shuffled(interpreter)
    answers = []
    for call in range(30):
        outcome = await tool.session(seed=call % 3).call({"code": f"{call % 3}/{call}"})
        answers.append(outcome.text.strip())
    assert interpreter.codes == [f"{call % 3}/{call}" for call in range(30)]  # every call is made
    assert answers[0] == "0/0"  # there is no other problem yet
    for call, answer in enumerate(answers[1:], start=1):
        problem, of = map(int, answer.split("/"))
        assert problem != call % 3
        assert of < call
    assert len(set(answers)) > 10


async def test_the_seed_chooses_among_the_outcomes() -> None:
    async def answers(seed: int) -> list[str]:
        tool = shuffled(seed=seed)
        return [(await tool.session(call % 5).call({"code": str(call)})).text for call in range(40)]

    assert await answers(1) == await answers(1) != await answers(2)


async def test_shuffled_tool_delegates_everything_else() -> None:
    tool = shuffled()
    assert (tool.description, tool.parameters) == (PythonTool.description, PythonTool.parameters)
    assert tool.speculative
    assert tool.metrics() == tool.tool.metrics()
    session = tool.session(1)
    assert (await session.call({"code": "a"})).text == "a\n"
    assert (await session.fork().call({"code": "b"})).text == "b\n"  # of one problem: there is no other still
    assert (await tool.session(2).fork().call({"code": "c"})).text in ("a\n", "b\n")
