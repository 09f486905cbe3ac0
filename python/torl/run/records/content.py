"""The content of the records of a step: what the same step has again whenever it is made again.

Times, memory, and counts of caches depend on the machine and its load. They are not part of the content.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from torl.base.types import ToolCall, Turn
from torl.run.records import metric_names as names

KINDS: Final = ("problems", "tokens", "logprobs", "observations", "rewards", "advantages")
"""The parts of a step's trajectories, in the order in which a step makes them."""

_MEASURED: Final = frozenset(
    {
        *(each.name for kind in (Turn, ToolCall) for each in fields(kind) if "measured" in each.metadata),
        *("seconds", "cpu_seconds", "wall_seconds", "peak_memory_bytes", "worker_node"),  # details of an outcome
    }
)
_MEASURED_METRICS: Final = frozenset(
    {
        names.EPISODE_SECONDS,
        names.CACHED_SHARE,
        names.WAIT_SHARE,
        names.SPECULATED,
        names.SPECULATIONS_WASTED,
        names.UPDATE_TIME,
        names.UPDATE_SECONDS,
        names.critic_metric(names.UPDATE_SECONDS),
    }
)
_COUNTS_SINCE_START: Final = ("reward/count/", "environment/count/", "agent/", "time/")
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "problems": ("step", "group", "sample", "problem", "question", "reference_answer", "prompt_token_ids", "format"),
    "tokens": (
        "token_ids",
        "loss_mask",
        "policy_versions",
        "turns",
        "text",
        "sampled_text",
        "finish_reason",
        "program_answer",
    ),
    "logprobs": ("rollout_logprobs",),
    "observations": ("tool_calls", "user_messages"),
    "rewards": (
        "answer",
        "correct",
        "grader_failure",
        "grade_detail",
        "valid_format",
        "reward",
        "reward_parts",
        "turn_rewards",
        "environment_rewards",
    ),
    "advantages": ("advantage", "token_numbers"),
}


def content_of(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the content of a trajectory's row by kind (`KINDS`), without its branches."""
    return {kind: {key: _without_measures(row[key]) for key in keys if key in row} for kind, keys in _PARTS.items()}


def episode_rows(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of all trajectories of an episode, branches first."""
    return [*row.get("branches", ()), row]


def content_digests(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the SHA-256 of the content of a step's rows by kind, as hexadecimal digits."""
    hashes = {kind: hashlib.sha256() for kind in KINDS}
    for row in rows:
        for each in episode_rows(row):
            for kind, part in content_of(each).items():
                hashes[kind].update(canonical_json(part) + b"\n")
    return {kind: digest.hexdigest() for kind, digest in hashes.items()}


def learner_values(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of the learner that the same step has again."""
    return {name: value for name, value in metrics.items() if name.startswith("learner/") and is_content(name)}


def is_content(metric: str) -> bool:
    """Whether the same step has the same value of a metric again."""
    plain = metric
    if (split := names.split_evaluation(metric)) is not None:
        plain = split[1]
    if plain in ("step", "time") or plain in _MEASURED_METRICS or plain.startswith(_COUNTS_SINCE_START):
        return False
    if plain in names.finding:
        return False
    if plain.startswith("by/"):
        return is_content(plain.split("/", 2)[2])
    # tool/<tool>/<count>; the other names with three parts are fractions of a status or an error.
    is_tool_count = plain.startswith("tool/") and plain.count("/") > 1
    return not is_tool_count or plain.startswith(("tool/status/", "tool/error/"))


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", errors="surrogatepass")


def _without_measures(value: Any) -> Any:
    if isinstance(value, Mapping):
        # The arguments of a call are the model's text, regardless of their names.
        return {
            key: each if key == "arguments" else _without_measures(each)
            for key, each in value.items()
            if key not in _MEASURED
        }
    if isinstance(value, list) and value and isinstance(value[0], Mapping):  # lists of tokens are left as they are
        return [_without_measures(each) for each in value]
    return value
