"""The tokens of a response: their texts, and the numbers by which they can be colored."""

import codecs
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from torl.base.errors import ConfigError, DataError
from torl.base.options import read_toml
from torl.base.types import UpdateNumbers
from torl.run.records.files import CONFIG_FILE
from torl_lab.exchange import model_token_bytes
from torl_lab.view.index import damage_as_error, transaction
from torl_lab.view.sources import Target

Numbers = npt.NDArray[np.float64]
_Compute = Callable[[Mapping[str, Any], Mapping[str, Numbers]], Numbers | None]


@dataclass(frozen=True, slots=True)
class TokenColor:
    """A number of each token.

    Attributes:
        name: Name in links.
        label: Name in the page.
        scale: Kind of the scale: "category" for a few values, "down" for numbers up to 0, "around" for numbers on both
            sides of `center`, "up" for numbers from 0.
        compute: Function of a row and of its per-token arrays, which returns NaN for tokens without a number, or None
            if the record lacks it.
        center: Middle of the scale "around".
        absent: Reason why a trajectory that was learned from lacks it.
        in_row: Whether all trajectories that were learned from have it, not only recorded groups.
    """

    name: str
    label: str
    scale: str
    compute: _Compute
    center: float = 0.0
    absent: str = ""
    in_row: bool = False


def token_arrays(row: Mapping[str, Any], numbers: UpdateNumbers | None = None) -> dict[str, Numbers]:
    """Return the per-token arrays of a record by name, with one number for each response token.

    Args:
        row: Row of the trajectory.
        numbers: The learner's numbers of its tokens with a loss; NaN stands for the others.
    """
    count, places = len(row["token_ids"]), np.flatnonzero(sampled_tokens(row))
    recorded = {"rollout_logprobs": row.get("rollout_logprobs"), **(row.get("token_numbers") or {})}
    arrays = {
        name: np.array(values, np.float64) for name, values in recorded.items() if values and len(values) == count
    }
    for name, values in {} if numbers is None else numbers.arrays.items():
        if len(values) == len(places):  # a masked trajectory has no tokens with a loss
            arrays[name] = np.full(count, np.nan)
            arrays[name][places] = values
    return arrays


def unroll(runs: Sequence[Sequence[Any]]) -> Numbers:
    """Return the values of runs [value, length] one by one."""
    return np.repeat(np.array([value for value, _ in runs], np.float64), [int(length) for _, length in runs])


def sampled_tokens(row: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return the loss mask of a row."""
    return unroll(row["loss_mask"]).astype(np.bool_)


def _array(*names: str) -> _Compute:
    """Return the first recorded array of these names, at sampled tokens."""

    def compute(row: Mapping[str, Any], arrays: Mapping[str, Numbers]) -> Numbers | None:
        found = next((arrays[name] for name in names if name in arrays), None)
        return None if found is None else np.where(sampled_tokens(row), found, np.nan)

    return compute


def _versions(row: Mapping[str, Any], _: Mapping[str, Numbers]) -> Numbers:
    versions = unroll(row["policy_versions"])
    return np.where(versions < 0, np.nan, versions)


def _gap(row: Mapping[str, Any], arrays: Mapping[str, Numbers]) -> Numbers | None:
    learner, rollout = _first_logprobs(row, arrays), arrays.get("rollout_logprobs")
    return None if learner is None or rollout is None else learner - rollout


def _ratios(row: Mapping[str, Any], arrays: Mapping[str, Numbers]) -> Numbers | None:
    """Return the ratio of the policy in the optimizer step to the one before the first."""
    learner, old = arrays.get("learner_logprobs"), arrays.get("old_logprobs")
    return None if learner is None or old is None else np.exp(learner - old)


def _advantages(row: Mapping[str, Any], arrays: Mapping[str, Numbers]) -> Numbers | None:
    """Return token-wise advantages, or the advantage of the trajectory, which all of its sampled tokens share."""
    if "advantages" in arrays:
        return _array("advantages")(row, arrays)
    advantage = row.get("advantage")
    return None if advantage is None else np.where(sampled_tokens(row), float(advantage), np.nan)


_first_logprobs = _array("old_logprobs", "learner_logprobs")  # before the first optimizer step, if recorded
_learner_logprobs = _array("learner_logprobs", "old_logprobs")

COLORS: Final = (
    TokenColor("mask", "loss mask", "category", lambda row, _: sampled_tokens(row).astype(np.float64)),
    TokenColor("rollout_logprob", "log-probability (engine)", "down", _array("rollout_logprobs")),
    TokenColor("learner_logprob", "log-probability (learner)", "down", _learner_logprobs),
    TokenColor("gap", "gap: learner minus engine", "around", _gap),
    TokenColor(
        *("reference_logprob", "log-probability (reference)", "down", _array("ref_logprobs")),
        absent="the run has no reference model",
        in_row=True,
    ),
    TokenColor("advantage", "advantage", "around", _advantages),
    TokenColor("entropy", "entropy", "up", _array("entropies")),
    TokenColor(
        *("call", "probability of a call", "up"),
        lambda _, arrays: np.exp(arrays["call_logprobs"]) if "call_logprobs" in arrays else None,
    ),
    TokenColor("ratio", "importance ratio", "around", _ratios, 1.0, "1: it was in the first optimizer step only"),
    TokenColor("weight", "importance weight", "around", _array("importance_weights"), 1.0, "no importance correction"),
    TokenColor("clipped", "clipped", "category", _array("clipped"), absent="the loss does not clip"),
    TokenColor("value", "value (critic)", "around", _array("values"), absent="the run has no critic", in_row=True),
    TokenColor(
        *("token_reward", "reward of the token", "around", _array("token_rewards")),
        absent="the reward is at the last token",
        in_row=True,
    ),
    TokenColor("version", "policy version", "category", _versions),
)
NOT_RECORDED: Final = "not recorded for this trajectory (run.token_groups)"


def color_tokens(
    row: Mapping[str, Any], start: int, stop: int, numbers: UpdateNumbers | None = None, *, is_run: bool = True
) -> list[dict[str, Any]]:
    """Return each color with its numbers for the tokens from `start` to `stop`, or the reason why they are missing.

    Args:
        row: Row of the trajectory.
        start: First token.
        stop: End of the tokens.
        numbers: The learner's numbers of the trajectory, if they are recorded.
        is_run: Whether the trajectory is in the directory of a run.
    """
    arrays = token_arrays(row, numbers)
    colors: list[dict[str, Any]] = []
    for color in COLORS:
        entry: dict[str, Any] = {"name": color.name, "label": color.label, "scale": color.scale, "center": color.center}
        values = color.compute(row, arrays)
        if values is None:
            entry["missing"] = _reason(row, color, numbers) if is_run else "not in the file"
        else:
            finite = values[np.isfinite(values)]
            entry["range"] = [float(finite.min()), float(finite.max())] if len(finite) else None
            entry["values"] = [None if not np.isfinite(each) else float(f"{each:.6g}") for each in values[start:stop]]
        colors.append(entry)
    return colors


def _reason(row: Mapping[str, Any], color: TokenColor, numbers: UpdateNumbers | None) -> str:
    if color.compute is _advantages or (color.in_row and row.get("advantage") is None):
        return "outside the batch: this trajectory was not trained on"
    return color.absent if color.absent and (color.in_row or numbers is not None) else NOT_RECORDED


def store_vocabulary(database: sqlite3.Connection, target: Target) -> bool:
    """Store the bytes of all tokens of the run's model, unless they are stored; return whether they are.

    The tokenizer is that of the target (which replaces a stored one), of `model.path`, or of the model that the run
    wrote. Nothing is downloaded.
    """
    with damage_as_error():
        if target.tokenizer is None and database.execute("SELECT 1 FROM tokens").fetchone() is not None:
            return True
    table = _read_vocabulary(target)
    if not table:
        return False
    with damage_as_error(), transaction(database):
        database.execute("DELETE FROM tokens")
        database.executemany("INSERT OR REPLACE INTO tokens(id, bytes) VALUES (?, ?)", enumerate(table))
    return True


def _read_vocabulary(target: Target) -> list[bytes]:
    models = [target.tokenizer or str((target.directory / "model").resolve())]
    if target.tokenizer is None:
        with suppress(ConfigError, KeyError, TypeError):
            models.insert(0, str(read_toml(target.directory / CONFIG_FILE)["model"]["path"]))
    for model in models:
        with suppress(DataError):
            return model_token_bytes(model)
    return []


def token_texts(database: sqlite3.Connection, ids: Sequence[int]) -> list[str] | None:
    """Return the text that each token completes, which joined are the text of all; None without a vocabulary.

    The text of a token that ends within a character is shorter, and the next one has the character. An id outside the
    vocabulary has no text.
    """
    wanted = sorted({int(token) for token in ids})
    found: dict[int, bytes] = {}
    for start in range(0, len(wanted), 500):  # SQLite's limit on parameters
        part = wanted[start : start + 500]
        marks = ",".join("?" * len(part))
        found.update(database.execute(f"SELECT id, bytes FROM tokens WHERE id IN ({marks})", part))
    if not found and database.execute("SELECT 1 FROM tokens").fetchone() is None:
        return None
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    return [decode(found.get(int(token), b""), index == len(ids) - 1) for index, token in enumerate(ids)]
