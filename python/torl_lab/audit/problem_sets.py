"""The problem sets of a run, read again and rendered again as prompts."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from torl.base.errors import TorlError
from torl.base.types import Problem, Prompt
from torl.components.text.prompts import PromptStream
from torl.components.text.sources import digest_problems, is_digest
from torl.rollout.grading import ProblemsById
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import ProblemChoice, PromptConfig
from torl_lab.audit.checks import Check


class ProblemSet(ProblemsById):
    """The prompts of a problem source, read as far as the records need them and rendered again."""

    def __init__(
        self,
        check: Check,
        name: str,
        choice: ProblemChoice,
        config: PromptConfig,
        model: ModelDirectory,
        limit: int | None,
    ) -> None:
        """Prepare the set.

        Args:
            check: Check that receives notes on prompts that cannot be compared.
            name: Key of the source in the configuration.
            choice: Problem source.
            config: Prompt template.
            model: Model with its tokenizer and tools.
            limit: Number of problems that are used. None for all.
        """
        self.name = name
        self._check, self._config, self._model, self._choice = check, config, model, choice
        self._rendered: dict[Problem, Prompt | None] = {}
        self._fitting: dict[int, tuple[list[str], int] | None] = {}
        super().__init__(choice, limit)

    def drop(self, reason: str) -> None:
        """Compare the prompts with the recorded questions alone from now on."""
        super().drop(reason)
        self._rendered.clear()
        self._check.add_note(f"{self.name} {reason}; questions are taken from the records")

    def differ_from(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the source has others than the problems that a run had read (`SourceDigest.entry`).

        Raises:
            TorlError: The problems cannot be read.
        """
        count = recorded.get("rows")
        is_count = isinstance(count, int) and count >= 0
        read = None if recorded.get("ended") else count
        return not is_count or not is_digest(digest_problems(self._choice.bind()(), read), recorded)

    def fitting(self, max_prompt_tokens: int) -> tuple[list[str], int] | None:
        """Return the ids of the problems whose prompts fit, and the number of the others; None if that is unknown."""
        if max_prompt_tokens not in self._fitting:
            self._fitting[max_prompt_tokens] = self._find_fitting(max_prompt_tokens)
        return self._fitting[max_prompt_tokens] if self.available else None

    def prompts(self, recorded: Iterable[Problem]) -> dict[Problem, Prompt]:
        """Return the prompt of each recorded problem, rendered again, if that is possible.

        A recorded problem is replaced by the problem of the source with its id.
        """
        problems = list(dict.fromkeys(recorded))
        missing = [problem for problem in problems if problem not in self._rendered]
        if missing:
            self._rendered |= dict.fromkeys(missing)
            sources = [self.problem(problem.id) or problem for problem in missing]
            tokenizer, template = self._model.tokenizer, self._config.template.bind()
            try:
                stream = PromptStream(lambda: sources, tokenizer, template, sys.maxsize, self._model.tool_schemas)
                self._rendered |= zip(missing, list(stream), strict=True)
            except TorlError as error:
                self._check.add_note(f"prompts of {self.name} cannot be rendered: {error}")
        return {problem: prompt for problem in problems if (prompt := self._rendered.get(problem)) is not None}

    def _find_fitting(self, max_prompt_tokens: int) -> tuple[list[str], int] | None:
        self._read_until(None)
        tokenizer, template, tools = self._model.tokenizer, self._config.template.bind(), self._model.tool_schemas
        try:
            stream = PromptStream(self._problems.values, tokenizer, template, max_prompt_tokens, tools)
            ids = [prompt.problem.id for prompt in stream]
        except TorlError as error:
            self._check.add_note(f"prompts of {self.name} cannot be rendered: {error}")
            return None
        return ids, len(self._problems) - len(ids)
