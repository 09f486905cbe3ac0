"""Episodes with a tool, played by the plain-torch model: for measuring the base before it is accepted."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer

from demo_maker.interpreter import Interpreter, Run
from demo_maker.model import DemoModel
from demo_maker.tokenizer import end_of_text_id
from torl.recipes.torl import TEMPLATE as TORL_TEMPLATE

MARKER = "```output"
CODE_BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
ANSWER = re.compile(r"\\boxed\{([^{}]*)\}")
MAX_MARKER_TOKENS = len(MARKER)
RESPONSE_TOKENS = 160


@dataclass(slots=True)
class Episode:
    """One response under way. `sampled[i]` says whether `token_ids[i]` was sampled rather than observed."""

    prompt_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    turn_start: int = 0
    forced: deque[int] = field(default_factory=deque)
    runs: list[Run] = field(default_factory=list)
    finished: bool = False

    def sampled_text(self, tokenizer: Tokenizer) -> str:
        """The text that the model wrote, observations replaced by a newline."""
        pieces: list[list[int]] = [[]]
        for token, sampled in zip(self.token_ids, self.sampled, strict=True):
            if sampled:
                pieces[-1].append(token)
            elif pieces[-1]:
                pieces.append([])
        return "\n".join(tokenizer.decode(piece) for piece in pieces)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Rates over episodes; `pass_ratio` is over runs."""

    accuracy: float
    code_ratio: float
    pass_ratio: float


@torch.inference_mode()
def play(
    model: DemoModel,
    tokenizer: Tokenizer,
    problems: Sequence[str],
    *,
    interpreter: Interpreter,
    generator: torch.Generator | None,
    max_calls: int = 1,
    response_tokens: int = RESPONSE_TOKENS,
) -> list[Episode]:
    """Answer every problem once, at temperature 1, or greedily when there is no generator.

    All rows are at the same position at every step: prompts beyond the shortest, and observations, are fed
    token by token while other rows sample.
    """
    episodes = [Episode(tokenizer.encode(TORL_TEMPLATE.replace("{problem}", problem)).ids) for problem in problems]
    shortest = min(len(episode.prompt_ids) for episode in episodes)
    longest = max(len(episode.prompt_ids) for episode in episodes)
    rest = [deque(episode.prompt_ids[shortest:]) for episode in episodes]
    end_of_text = end_of_text_id(tokenizer)
    rows = list(range(len(episodes)))
    caches = model.new_caches(len(rows), longest + response_tokens)
    tokens = torch.tensor([episode.prompt_ids[:shortest] for episode in episodes])
    while True:
        logits = model.logits(model.hidden_states(tokens, caches)[:, -1])
        if generator is None:
            choices = logits.argmax(-1).tolist()
        else:
            choices = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0].tolist()
        for slot, row in enumerate(rows):
            episode = episodes[row]
            if episode.finished:
                continue
            if rest[row]:
                choices[slot] = rest[row].popleft()
                continue
            is_sampled = not episode.forced
            if episode.forced:
                choices[slot] = episode.forced.popleft()
            episode.token_ids.append(choices[slot])
            episode.sampled.append(is_sampled)
            if is_sampled and choices[slot] == end_of_text:
                episode.finished = True
            elif is_sampled and len(episode.runs) < max_calls:
                _call_tool(episode, tokenizer, interpreter)
            episode.finished |= len(episode.token_ids) >= response_tokens
        alive = [slot for slot, row in enumerate(rows) if not episodes[row].finished]
        if not alive:
            return episodes
        if len(alive) <= len(rows) * 3 // 4:
            kept = torch.tensor(alive)
            for cache in caches:
                cache.keys, cache.values = cache.keys[kept], cache.values[kept]
            rows, choices = [rows[slot] for slot in alive], [choices[slot] for slot in alive]
        tokens = torch.tensor(choices)[:, None]


def _call_tool(episode: Episode, tokenizer: Tokenizer, interpreter: Interpreter) -> None:
    """Run the turn's last closed block when its text has just reached the marker."""
    if not tokenizer.decode(episode.token_ids[-MAX_MARKER_TOKENS:]).endswith(MARKER):
        return
    blocks = CODE_BLOCK.findall(tokenizer.decode(episode.token_ids[episode.turn_start :]))
    if not blocks:
        return
    run = interpreter.run(blocks[-1])
    episode.runs.append(run)
    episode.forced.extend(tokenizer.encode(f"\n{run.observation}\n```\n").ids)
    episode.turn_start = len(episode.token_ids) + len(episode.forced)


def is_correct(episode: Episode, tokenizer: Tokenizer, answer: str) -> bool:
    """Whether the last sampled box holds exactly the answer."""
    boxes = ANSWER.findall(episode.sampled_text(tokenizer))
    return bool(boxes) and boxes[-1].strip() == answer


def measure(episodes: Sequence[Episode], tokenizer: Tokenizer, answers: Sequence[str]) -> Measurement:
    """Accuracy, code ratio and pass ratio of finished episodes."""
    correct = sum(is_correct(episode, tokenizer, answer) for episode, answer in zip(episodes, answers, strict=True))
    with_code = sum("```python" in episode.sampled_text(tokenizer) for episode in episodes)
    runs = [run for episode in episodes for run in episode.runs]
    passed = sum(run.ok for run in runs)
    return Measurement(correct / len(episodes), with_code / len(episodes), passed / max(1, len(runs)))
