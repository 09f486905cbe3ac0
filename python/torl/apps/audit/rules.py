"""What the episodes of a run followed."""

from dataclasses import dataclass
from pathlib import Path

from torl._core import Vocabulary
from torl.config import RolloutConfig
from torl.formats import Format
from torl.text.tokenizer import PlainTextEncoder, control_token_ids, load_tokenizer, stop_token_ids
from torl.text.vocabulary import build_vocabulary
from torl.tools import PythonTool


class MismatchError(Exception):
    """Something is off in a trajectory."""


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """The parts that an episode is played again with."""

    format: Format
    vocabulary: Vocabulary  # of the model's tokenizer
    encoder: PlainTextEncoder  # that encoded the observations
    stop_token_ids: frozenset[int]
    python_tools: frozenset[str]  # the names of the tools that run Python
    rollout: RolloutConfig
    end_token_ids: frozenset[int] = frozenset()  # of the stop tokens, those that are the format's

    @classmethod
    def from_config(cls, rollout: RolloutConfig, model: Path) -> "ReplayContext":
        """The rules of a configuration and its model.

        Raises:
            DataError: the model's tokenizer cannot be read.
        """
        tokenizer = load_tokenizer(model)
        format: Format = rollout.format.make()
        vocabulary = build_vocabulary(tokenizer, format.visible_tokens)
        end_token_ids = frozenset(control_token_ids(tokenizer, format.end_tokens))
        python = (
            name
            for name, tool in rollout.tools.items()
            if isinstance(tool.target, type) and issubclass(tool.target, PythonTool)
        )
        return cls(
            format=format,
            vocabulary=vocabulary,
            encoder=PlainTextEncoder(tokenizer, vocabulary),
            stop_token_ids=end_token_ids.union(stop_token_ids(model, tokenizer)),
            python_tools=frozenset(python),
            rollout=rollout,
            end_token_ids=end_token_ids,
        )
