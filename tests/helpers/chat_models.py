"""A model of each chat family, as far as formats see one: the tests' vocabulary with the family's control tokens."""

import asyncio
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerFast

from builders import asked, player
from scripted_engine import STOP, ScriptedEngine, ScriptedInterpreter
from tokenizers_for_tests import byte_level_bpe
from torl._core import Vocabulary
from torl.base.options import ChosenFrom
from torl.base.types import Trajectory
from torl.components.formats import FORMATS, ChatFormat
from torl.components.formats.chat import ChatOptions
from torl.components.text.tokenizer import PlainTextEncoder, control_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.rollout.episode import EpisodePlayer
from torl.run.config import RolloutConfig
from torl_lab.audit.replay import ReplayContext

FAMILIES = [name for name, form in FORMATS.items() if isinstance(form, type) and issubclass(form, ChatFormat)]
OTHER_TOKENS = {
    "hermes": ("<|endoftext|>", "<tool_response>", "</tool_response>", "</think>"),
    "llama3": ("<|begin_of_text|>", "<|end_of_text|>"),
    "deepseek": tuple(
        f"<\uff5c{name}\uff5c>".replace(" ", "\u2581")
        for name in ("begin of sentence", "tool calls begin", "tool calls end")
    ),
    "kimi": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
}
"""Additional tokens of the vocabularies, which the formats pass over or, in other vocabularies, find spelled."""


@dataclass(frozen=True)
class ChatModel:
    """A run's view of a model, and how its messages are written."""

    form: ChatFormat
    tokenizer: PreTrainedTokenizerFast

    @classmethod
    def of(cls, family: str, base: PreTrainedTokenizerFast | None = None, **options: Any) -> "ChatModel":
        """A model of this family, with another vocabulary than the tests' own if one is given."""
        made = ChosenFrom(FORMATS, "format").find(family)
        form = made() if family == "mathcoder" else made(ChatOptions(**options))
        tokenizer = copy.deepcopy(base or byte_level_bpe())
        tokenizer.add_tokens([*form.control_tokens, *form.visible_tokens, *form.end_tokens], special_tokens=True)
        tokenizer.add_tokens([*OTHER_TOKENS.get(family, ())], special_tokens=family != "hermes")
        return cls(form, tokenizer)

    def ids(self, text: str) -> list[int]:
        """A text whose control tokens are these tokens, as a model samples it."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    @property
    def end(self) -> str:
        """The end of a message with calls."""
        return self.form.end_tokens[0]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return build_vocabulary(self.tokenizer, self.form.visible_tokens)

    @cached_property
    def encoder(self) -> PlainTextEncoder:
        return PlainTextEncoder(self.tokenizer, self.vocabulary)

    @cached_property
    def end_token_ids(self) -> frozenset[int]:
        return frozenset(control_token_ids(self.tokenizer, self.form.end_tokens))

    def player(
        self,
        turns: Sequence[str],
        *,
        calls: int = 8,
        limit: int = 4000,
        piece: int = 1,
        interpreter: ScriptedInterpreter | None = None,
        **settings: Any,
    ) -> EpisodePlayer:
        """Plays episodes whose turns have these texts; every call prints its code, unless an interpreter is given."""
        engine = ScriptedEngine(
            lambda request: self.ids(turns[int(request.rpartition("/")[2])]),
            pieces=lambda _: [piece],
            vocabulary=self.vocabulary,
            stop_token_ids=self.end_token_ids | {STOP},
        )
        return player(
            engine,
            interpreter or ScriptedInterpreter(),
            form=self.form,
            limit=limit,
            vocabulary=self.vocabulary,
            encoder=self.encoder,
            end_token_ids=self.end_token_ids,
            max_tool_calls=calls,
            **settings,
        )

    def play(self, turns: Sequence[str], **settings: Any) -> Trajectory:
        """One episode of such a player."""
        prompt = asked(token_ids=self.ids("Q\n"))
        return asyncio.run(self.player(turns, **settings).play(prompt, batch_id=0, sample=0))

    def rules(self, *, calls: int = 8, limit: int = 4000, **rollout: Any) -> ReplayContext:
        """The audit's view of such an episode."""
        config = {"max_response_tokens": limit, "max_tool_calls": calls, "format": self.form.name, **rollout}
        return ReplayContext(
            self.form,
            self.vocabulary,
            self.encoder,
            self.end_token_ids | {STOP},
            frozenset({"python"}),
            RolloutConfig.model_validate(config),
            self.end_token_ids,
        )


def message(family: str, *codes: str, said: str = "Let us see.", tool: str = "python") -> str:
    """A message that runs these codes by a tool, as a model of the family writes it; the end token included."""
    calls = [(tool, json.dumps({"code": code}, ensure_ascii=False)) for code in codes]
    return written_message(family, calls, said="" if family == "llama3" else said)


def written_message(
    family: str, calls: Sequence[tuple[str, str]], *, said: str = "", between: str = "", after: str = ""
) -> str:
    """A message with calls of these tools and arguments, which are JSON, and other text around them."""
    section = ("", "")
    match family:
        case "hermes":
            written = [
                f'\n<tool_call>\n{{"name": "{tool}", "arguments": {call}}}\n</tool_call>' for tool, call in calls
            ]
        case "llama3":
            written = [f'{{"name": "{tool}", "parameters": {call}}}' for tool, call in calls]
        case "mistral":
            written = [f"[TOOL_CALLS]{tool}[ARGS]{call}" for tool, call in calls]
        case "deepseek":
            begin, separator, end = (
                f"<\uff5ctool\u2581{name}\uff5c>" for name in ("call\u2581begin", "sep", "call\u2581end")
            )
            written = [f"{begin}function{separator}{tool}\n```json\n{call}\n```{end}" for tool, call in calls]
            section = tuple(f"<\uff5ctool\u2581calls\u2581{edge}\uff5c>" for edge in ("begin", "end"))
            between = between or "\n"
        case "kimi":
            begin, middle, end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
            written = [f"{begin}functions.{tool}:{at}{middle}{call}{end}" for at, (tool, call) in enumerate(calls)]
            section = tuple(f"<|tool_calls_section_{edge}|>" for edge in ("begin", "end"))
        case "harmony":
            thought = f"<|channel|>analysis<|message|>{said}<|end|><|start|>assistant"
            header = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
            return thought + "".join(f"{header.format(tool)}{call}{after}" for tool, call in calls) + "<|call|>"
        case _:
            raise ValueError(family)
    end = {"llama3": "<|eot_id|>", "mistral": "</s>", "deepseek": "<\uff5cend\u2581of\u2581sentence\uff5c>"}
    return f"{said}{section[0]}{between.join(written)}{section[1]}{after}{end.get(family, '<|im_end|>')}"
