"""A taskset of verifiers whose answers are computed with the sandbox's toolset, and how its rollouts are played."""

import re

import verifiers.v1 as vf
from verifiers.v1.harnesses.null.harness import NullHarness

from torl.components.interop.verifiers import PythonState, PythonToolset, PythonToolsetConfig


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, PythonState]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        last = [node.message for node in trace.nodes][-1]
        return float(re.findall(r"\d+", str(last.content))[-1:] == [self.data.answer])


class SumsConfig(vf.TasksetConfig):
    tools: PythonToolsetConfig = PythonToolsetConfig(workers=1)


class SumsTaskset(vf.Taskset[SumTask, SumsConfig]):
    def load(self) -> list[SumTask]:
        problems = {"What is the sum of 0..99?": "4950", "What is the sum of 0..999?": "499500"}
        return [SumTask(SumData(prompt=text, answer=answer), self.config.task) for text, answer in problems.items()]

    @classmethod
    def toolsets(cls, config: SumsConfig) -> list[vf.Toolset]:
        return [PythonToolset(config.tools)]


class SumsHarness(NullHarness):
    """verifiers' own chat loop."""


__all__ = ["SumsHarness", "SumsTaskset"]
