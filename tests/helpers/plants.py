"""Planted mistakes for the audit of a run: each changes the files of a finished run, and one check must find it."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file

from cli import ROOT
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config
from torl.run.display.outcome import write_summary
from torl.run.records.receipt import RECEIPT_FILE, Receipt, end_receipt
from torl.run.records.run_directory import config_files
from torl.run.records.tokens import read_token_numbers, write_token_numbers
from torl.run.records.writers import RunWriter

BASE_MODEL = ROOT / "python" / "torl" / "demo" / "base_model"
Row = dict[str, Any]
CHECKPOINT = "checkpoints/step_000001"
_OF_THE_CHAIN = ("event", "number", "step", "files", "previous", "hash")


class Plant(NamedTuple):
    """A mistake, the check that finds it, and a part of the finding."""

    make: Callable[[Path], None]
    check: str
    words: str
    logprobs: bool = False
    """Whether log-probabilities are compared, which takes seconds."""


def copy_of(run: Path, copy: Path) -> Path:
    """Copy the records of a run. Checkpoints and model are linked: replace their files instead of writing to them."""
    for name in ("config.toml", "metrics.jsonl", "summary.json", "receipt.jsonl"):
        copy.mkdir(exist_ok=True)
        shutil.copyfile(run / name, copy / name)
    for name in ("trajectories", "tokens"):
        shutil.copytree(run / name, copy / name)
    for name in ("checkpoints", "model"):
        shutil.copytree(run / name, copy / name, copy_function=os.link)
    return copy


def facts_of(run: Path) -> Row:
    """The facts of the first start of a run."""
    first = read_rows(run / RECEIPT_FILE)[0]
    return {name: value for name, value in first.items() if name not in _OF_THE_CHAIN}


def start_again(run: Path, step: int, **settings: Any) -> None:
    """Begin to resume a run, with other settings."""
    config = load_config(TrainConfig, run / "config.toml", {"run.resume": True, **settings})
    RunWriter(run, resume_step=step, facts=facts_of(run), configs=config_files(run, config, step)).close()


def seal(run: Path) -> None:
    """Write the receipt of the files that the directory has now, as of a forged run."""
    facts, last_step = facts_of(run), read_rows(run / RECEIPT_FILE)[-1]["step"]
    (run / RECEIPT_FILE).unlink()
    receipt = Receipt.start(run, None, facts)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True) if metrics.exists() else []
    files = [path for name in ("trajectories", "tokens") for path in sorted((run / name).glob("*"))]
    for line in lines:
        receipt.append("row", json.loads(line)["step"], files, row=hashlib.sha256(line).hexdigest())
        files = []
    if (run / "summary.json").exists():
        end_receipt(run, last_step)


def replace_file(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def step_file(run: Path, step: int = 1) -> Path:
    return run / "trajectories" / f"step_{step:06d}.jsonl"


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(change: Callable[[list[Row]], list[Row] | None], file: str = "trajectories/step_000001.jsonl") -> Any:
    """A plant that changes the rows of a file, in place or by returning others."""

    def make(run: Path) -> None:
        before = (run / file).read_text()
        lines = read_rows(run / file)
        write_rows(run / file, change(lines) or lines)
        assert (run / file).read_text() != before

    return make


def token_numbers(name: str, factor: float, step: int = 0) -> Any:
    """A plant that multiplies an array of the learner's numbers of tokens."""

    def make(run: Path) -> None:
        numbers = read_token_numbers(run, step)
        changed = {
            key: replace(each, arrays={**each.arrays, name: each.arrays[name] * np.float32(factor)})
            for key, each in numbers.items()
        }
        write_token_numbers(run, step, changed)

    return make


def row(change: Callable[[Row], object], allowed: Callable[[Row], object] = bool, step: int = 0) -> Any:
    """A plant that changes the first row of a step that allows it."""
    return rows(
        lambda lines: change(next(each for each in lines if allowed(each))),  # type: ignore[func-returns-value]
        f"trajectories/step_{step:06d}.jsonl",
    )


def value(name: str, new: Any, allowed: Callable[[Row], object] = bool, step: int = 0) -> Any:
    """A plant that replaces a value of the first row that allows it; `new` may be a function of the old value."""

    def change(each: Row) -> None:
        each[name] = new(each[name]) if callable(new) else new

    return row(change, allowed, step)


def setting(old: str, new: str) -> Any:
    """A plant that changes a line of the configuration."""

    def make(run: Path) -> None:
        text = (run / "config.toml").read_text()
        assert f"\n{old}\n" in text
        (run / "config.toml").write_text(text.replace(f"\n{old}\n", f"\n{new}\n"))

    return make


def settings(*changes: tuple[str, str]) -> Any:
    """A plant that changes several lines of the configuration."""

    def make(run: Path) -> None:
        for old, new in changes:
            setting(old, new)(run)

    return make


def metric(name: str, new: Any) -> Any:
    """A plant that replaces a metric in all rows that have it."""

    def change(lines: list[Row]) -> None:
        for each in lines:
            if name in each:
                each[name] = new

    return rows(change, "metrics.jsonl")


def removed(*names: str) -> Any:
    """A plant that removes files or directories."""

    def make(run: Path) -> None:
        for name in names:
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return make


# --- conditions on rows -------------------------------------------------------------------------------------------


def calls(each: Row) -> bool:
    return bool(each["tool_calls"])


def succeeded(each: Row) -> bool:
    return calls(each) and each["tool_calls"][0]["status"] == "ok"


def called(each: Row) -> bool:
    return calls(each) and each["turns"][0]["stop_reason"] == "call"


def trained(each: Row) -> bool:
    return bool(each["advantage"])


def dropped(each: Row) -> bool:
    return each["advantage"] is None


def group_of(lines: list[Row], allowed: Callable[[Row], object]) -> list[Row]:
    name = next(each["group"] for each in lines if allowed(each))
    return [each for each in lines if each["group"] == name]


# --- changes ------------------------------------------------------------------------------------------------------


def _without_group(allowed: Callable[[Row], object]) -> Callable[[list[Row]], list[Row]]:
    def change(lines: list[Row]) -> list[Row]:
        group = group_of(lines, allowed)
        return [each for each in lines if each not in group]

    return change


def _without_member(allowed: Callable[[Row], object]) -> Callable[[list[Row]], list[Row]]:
    def change(lines: list[Row]) -> list[Row]:
        last = group_of(lines, allowed)[-1]
        return [each for each in lines if each is not last]

    return change


def _member_twice(allowed: Callable[[Row], object]) -> Callable[[list[Row]], list[Row]]:
    def change(lines: list[Row]) -> list[Row]:
        index = lines.index(group_of(lines, allowed)[0])
        return [*lines[: index + 1], *lines[index:]]

    return change


def _equal_numbers(lines: list[Row]) -> None:
    group = group_of(lines, dropped)
    group[1]["sample"] = group[0]["sample"]


def _swapped_groups(lines: list[Row]) -> None:
    first, second = group_of(lines, trained)[0], lines[-1]
    assert first["group"] != second["group"]
    first["group"], second["group"] = second["group"], first["group"]


def _no_advantages(lines: list[Row]) -> None:
    for each in lines:
        each["advantage"] = None


def _reversed_prompts(lines: list[Row]) -> None:
    for each in lines:
        each["prompt_token_ids"].reverse()


def _mask_by_one(each: Row) -> None:
    each["loss_mask"][0][1] -= 1
    each["loss_mask"][1][1] += 1


def _all_masked_in(each: Row) -> None:
    each["loss_mask"] = [[True, sum(length for _, length in each["loss_mask"])]]


def _observed_token(each: Row) -> None:
    each["token_ids"][each["tool_calls"][0]["start"]] += 1


def _observed_logprob(each: Row) -> None:
    each["rollout_logprobs"][each["tool_calls"][0]["start"]] = -0.5


def _observed_version(each: Row) -> None:
    each["policy_versions"] = [[max(0, version), length] for version, length in each["policy_versions"]]


def _sampled_token(each: Row) -> None:
    each["token_ids"][0] += 1


def _impossible_token(each: Row) -> None:
    each["token_ids"][0] = 10**6


def _call(**values: Any) -> Callable[[Row], None]:
    def change(each: Row) -> None:
        each["tool_calls"][0].update(values)

    return change


def _printed(each: Row) -> None:
    each["tool_calls"][0]["text"] += "1"
    each["tool_calls"][0]["details"]["stdout"] += "1"


def _details(each: Row) -> None:
    each["tool_calls"][0]["details"]["stdout"] += "1"


def _code(each: Row) -> None:
    each["tool_calls"][0]["arguments"]["code"] += " "


def _turn(index: int, **values: Any) -> Callable[[Row], None]:
    def change(each: Row) -> None:
        turn = each["turns"][index]
        turn.update({name: new(turn[name]) if callable(new) else new for name, new in values.items()})

    return change


def _truncated(each: Row) -> None:
    each["finish_reason"] = each["turns"][-1]["stop_reason"] = "length"


def _parts(each: Row) -> None:
    each["reward_parts"]["answer"] -= 0.25
    each["reward_parts"]["length"] = each["reward_parts"].get("length", 0.0) + 0.25


def _version(change: int) -> Callable[[Row], None]:
    def make(each: Row) -> None:
        each["policy_versions"][0][0] += change

    return make


def _logprobs(lines: list[Row]) -> None:
    for each in lines:
        each["rollout_logprobs"] = [each_logprob and each_logprob - 0.002 for each_logprob in each["rollout_logprobs"]]


def _logprob_above_0(each: Row) -> None:
    each["rollout_logprobs"][0] = 0.1


def _reference_above_0(each: Row) -> None:
    each["token_numbers"]["ref_logprobs"][0] = 0.1


def _all_gaps(run: Path) -> None:
    for name in ("mean", "max", "kl", "on_policy"):
        metric(f"learner/logprob_gap_{name}", 9.0)(run)


def _one_logprob(each: Row) -> None:
    each["rollout_logprobs"][0] -= 0.5


def _other_weights(run: Path) -> None:
    file = sorted((run / CHECKPOINT / "learner").glob("*.safetensors"))[0]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    replace_file(file, bytes(data))


def _sign_again(checkpoint: Path) -> None:
    """Write the hashes of a checkpoint's files into its manifest."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name in manifest["files"]:
        data = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    replace_file(checkpoint / "manifest.json", json.dumps(manifest).encode())


def scale_weights(checkpoint: Path, model: str) -> None:
    """Change the weights of a model in a checkpoint, which is signed again."""
    for path in (checkpoint / "learner").glob(f"{model}*.safetensors"):
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        scaled = {name: tensor * (1.05 if name.startswith("master/") else 1) for name, tensor in tensors.items()}
        path.unlink()
        save_file(scaled, path, metadata=metadata)
    _sign_again(checkpoint)


def _scaled_weights(run: Path) -> None:
    """The last checkpoint, which no step was sampled with, has other weights."""
    scale_weights(run / "checkpoints" / "step_000002", "policy")


def _sampler_position(run: Path) -> None:
    state = json.loads((run / CHECKPOINT / "controller.json").read_text())
    state["sampler"]["position"] += 1
    replace_file(run / CHECKPOINT / "controller.json", json.dumps(state).encode())
    _sign_again(run / CHECKPOINT)


def _exported_base(run: Path) -> None:
    replace_file(run / "model" / "model.safetensors", (BASE_MODEL / "model.safetensors").read_bytes())


def _exported_config(run: Path) -> None:
    path = run / "model" / "config.json"
    replace_file(path, json.dumps({**json.loads(path.read_text()), "rms_norm_eps": 1e-3}).encode())


def _old_evaluation(run: Path) -> None:
    """The last evaluation has the trajectories and the metrics of the first."""
    lines = read_rows(run / FIRST_EVALUATION)
    for each in lines:
        each["step"] = 2
        each["policy_versions"] = [
            [2 if version == 0 else version, length] for version, length in each["policy_versions"]
        ]
    write_rows(run / EVALUATION, lines)
    lines = read_rows(run / "metrics.jsonl")
    first, last = (each for each in lines if "time/evaluation" in each)
    last.update({name: value for name, value in first.items() if name.startswith("evaluation/")})
    write_rows(run / "metrics.jsonl", lines)
    write_summary(run)


def _steps_exchanged(run: Path) -> None:
    """Both steps, with their numbers and versions."""
    files = [read_rows(step_file(run, step)) for step in (1, 0)]
    for step, lines in enumerate(files):
        for each in lines:
            each |= {"step": step, "group": f"{step}/{each['problem']}"}
            versions = each["policy_versions"]
            each["policy_versions"] = [[version if version < 0 else step, length] for version, length in versions]
        write_rows(step_file(run, step), lines)
    lines = read_rows(run / "metrics.jsonl")
    for each in lines:
        each["step"] = 1 - each["step"] if "time/step" in each else each["step"]
    write_rows(run / "metrics.jsonl", lines)


def _reference_logprobs(lines: list[Row]) -> None:
    for each in lines:
        for index, number in enumerate(each["token_numbers"].get("ref_logprobs", ())):
            each["token_numbers"]["ref_logprobs"][index] = number and number - 0.01


def _reference_is_the_base_model(run: Path) -> None:
    found = re.sub(r'"[^"]*/reference_model"', f'"{BASE_MODEL}"', (run / "config.toml").read_text())
    (run / "config.toml").write_text(found)


def _first_line(run: Path) -> None:
    text = (run / "config.toml").read_text()
    assert "step 0" in text
    (run / "config.toml").write_text(text.replace("step 0", "step 1", 1))


def copied(source: str, target: str) -> Any:
    """A plant that copies a file."""
    return lambda run: shutil.copyfile(run / source, run / target)


def added(name: str, new: float, row_of: str = "time/step") -> Any:
    """A plant that sets a metric in all rows of a kind, whether or not they have it."""

    def change(lines: list[Row]) -> None:
        for each in lines:
            if row_of in each:
                each[name] = new

    return rows(change, "metrics.jsonl")


def _weights_of_another_step(run: Path) -> None:
    shutil.rmtree(run / CHECKPOINT)
    shutil.copytree(run / "checkpoints" / "step_000002", run / CHECKPOINT, copy_function=os.link)


def _emptied(run: Path) -> None:
    step_file(run).write_text("")


def _half_a_line(run: Path) -> None:
    path = step_file(run)
    path.write_bytes(path.read_bytes()[:-100])


def _damaged_line(run: Path) -> None:
    path = step_file(run)
    path.write_text("{broken\n" + path.read_text())


def _last_step(run: Path) -> None:
    step_file(run).unlink()
    rows(lambda lines: [each for each in lines if each["step"] != 1 or "time/step" not in each], "metrics.jsonl")(run)


def _summary(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "accuracy_after": 0.9}))


def _written(name: str, data: bytes = b"{}") -> Any:
    """A plant that writes a file."""

    def make(run: Path) -> None:
        (run / name).parent.mkdir(exist_ok=True, parents=True)
        (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(data)

    return make


def _second_weights(run: Path) -> None:
    shutil.copyfile(run / "model" / "model.safetensors", run / "model" / "model-00002-of-00002.safetensors")


def _other_end(run: Path) -> None:
    path = run / "model" / "generation_config.json"
    replace_file(path, json.dumps({**json.loads(path.read_text()), "eos_token_id": 7}).encode())


def _controller(**values: Any) -> Callable[[Path], None]:
    """A plant that changes the controller's state in a checkpoint, which is signed again."""

    def make(run: Path) -> None:
        path = run / CHECKPOINT / "controller.json"
        replace_file(path, json.dumps({**json.loads(path.read_text()), **values}).encode())
        _sign_again(run / CHECKPOINT)

    return make


def _shards(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Path], None]:
    """A plant that changes the tensors and the facts of a checkpoint's files, which are signed again."""

    def make(run: Path) -> None:
        for path in (run / CHECKPOINT / "learner").glob("*.safetensors"):
            with safe_open(path, "pt") as file:
                metadata = json.loads(file.metadata()["torl"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            change(tensors, metadata["facts"])
            path.unlink()
            save_file(tensors, path, metadata={"torl": json.dumps(metadata)})
        _sign_again(run / CHECKPOINT)

    return make


def _more_optimizer_steps(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    facts["counters"]["policy"] += 1


def _other_age_of_moments(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    facts["steps"] += 5


def no_moments(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    for name, tensor in tensors.items():
        if not name.startswith("master/"):
            tensor.zero_()


def _all_logprobs(change: Callable[[float], float]) -> Any:
    """A plant that changes the log-probabilities of all sampled tokens of the first step."""

    def make(lines: list[Row]) -> None:
        for each in lines:
            each["rollout_logprobs"] = [number and change(number) for number in each["rollout_logprobs"]]

    return rows(make, FIRST_STEP)


FIRST_STEP = "trajectories/step_000000.jsonl"
EVALUATION = "trajectories/evaluation_000002_heldout.jsonl"
FIRST_EVALUATION = "trajectories/evaluation_000000_heldout.jsonl"
PLANTS = {
    # --- missing, repeated or damaged records
    "step removed": Plant(removed("trajectories/step_000001.jsonl"), "files", "24 trajectories, found no file"),
    "step emptied": Plant(_emptied, "files", "24 trajectories, found 0"),
    "last step removed": Plant(_last_step, "files", "step_000001.jsonl: expected"),
    "half a line": Plant(_half_a_line, "files", "24 trajectories, found 23"),
    "damaged line": Plant(_damaged_line, "files", "line 1: damaged"),
    "trained group removed": Plant(rows(_without_group(trained)), "files", "24 trajectories, found 20"),
    "uniform group removed": Plant(rows(_without_group(dropped)), "files", "24 trajectories, found 20"),
    "member of a trained group removed": Plant(rows(_without_member(trained)), "groups", "samples [0, 1, 2, 3], found"),
    "member of a uniform group removed": Plant(rows(_without_member(dropped)), "groups", "samples [0, 1, 2, 3], found"),
    "member of a trained group twice": Plant(rows(_member_twice(trained)), "groups", "found samples [0, 0, 1, 2, 3]"),
    "member of a uniform group twice": Plant(rows(_member_twice(dropped)), "groups", "found samples [0, 0, 1, 2, 3]"),
    "equal sample numbers": Plant(rows(_equal_numbers), "groups", "found samples [0, 0, 2, 3]"),
    "swapped groups": Plant(rows(_swapped_groups), "groups", "expected records of the problem"),
    "step number": Plant(value("step", 0, step=1), "groups", "records of step 1, found records of steps [0, 1]"),
    "evaluation removed": Plant(removed(EVALUATION), "files", "2 trajectories, found no file"),
    "evaluated trajectory removed": Plant(
        rows(lambda lines: lines[1:], EVALUATION), "files", "2 trajectories, found 1"
    ),
    "metrics removed": Plant(removed("metrics.jsonl"), "metrics", "metrics.jsonl: cannot be read"),
    "metrics of a step removed": Plant(
        rows(lambda lines: [each for each in lines if each["step"] or "time/step" not in each], "metrics.jsonl"),
        "metrics",
        "expected a row of step 0, found none",
    ),
    "metrics of a step twice": Plant(rows(lambda lines: lines + lines, "metrics.jsonl"), "metrics", "found two"),
    "evaluation that was not due": Plant(
        copied(FIRST_EVALUATION, "trajectories/evaluation_000001_heldout.jsonl"), "files", "expected no such file"
    ),
    "evaluation of an unknown set": Plant(
        copied(EVALUATION, "trajectories/evaluation_000002_aime.jsonl"), "files", "expected no such file"
    ),
    "sampled text": Plant(value("sampled_text", lambda text: f"{text}."), "files", "sampled_text: expected"),
    "unknown key": Plant(
        value("new", 1, allowed=lambda each: each.setdefault("new", 0) == 0), "files", "new: expected"
    ),
    # --- checkpoints
    "checkpoints removed": Plant(
        removed("checkpoints"), "checkpoints", "step_000001: expected a checkpoint, found none"
    ),
    "checkpoint removed": Plant(removed(CHECKPOINT), "checkpoints", "step_000001: expected a checkpoint, found none"),
    "manifest removed": Plant(removed(f"{CHECKPOINT}/manifest.json"), "checkpoints", "manifest.json cannot be read"),
    "file of a checkpoint removed": Plant(
        removed(f"{CHECKPOINT}/learner/policy_rank_00000.safetensors"), "checkpoints", "safetensors is missing"
    ),
    "weights": Plant(_other_weights, "checkpoints", "the content of learner/policy_rank_00000.safetensors has changed"),
    "weights of another step": Plant(
        _weights_of_another_step, "checkpoints", "after step 1, found the state after step 2"
    ),
    "signed position of the sampler": Plant(_sampler_position, "checkpoints", "the sampler's position after step 1"),
    "signed weights": Plant(_scaled_weights, "checkpoints", "as in the last checkpoint, found other weights", True),
    "counter of optimizer steps": Plant(_shards(_more_optimizer_steps), "checkpoints", "'counters': {'policy': 2"),
    "age of the moments": Plant(_shards(_other_age_of_moments), "checkpoints", "found {'steps': 6"),
    "unknown state of the controller": Plant(_controller(new=1), "checkpoints", "entries: expected [], found ['new']"),
    "other problems ahead": Plant(
        _controller(ahead=["train-0001"] * 6), "checkpoints", "step_000001, problems ahead: expected"
    ),
    "file in a checkpoint": Plant(
        _written(f"{CHECKPOINT}/learner/more.pt"), "checkpoints", "learner/more.pt: expected no"
    ),
    "tokenizer of the model": Plant(
        _written("model/tokenizer.json"), "checkpoints", "model/tokenizer.json: expected the"
    ),
    "tokenizer of the model removed": Plant(
        removed("model/tokenizer.json"), "checkpoints", "model/tokenizer.json: expected a file, found none"
    ),
    "end token of the model": Plant(_other_end, "checkpoints", "model/generation_config.json: expected the file"),
    "end tokens of the model removed": Plant(
        removed("model/generation_config.json"), "checkpoints", "model/generation_config.json: expected a file"
    ),
    "second file of weights": Plant(_second_weights, "checkpoints", "model-00002-of-00002.safetensors: expected no"),
    "file in the model": Plant(
        _written("model/chat_template.jinja", b"?"), "checkpoints", "jinja: expected no such file"
    ),
    "adapter of the model": Plant(
        _written("model/adapter/adapter_config.json"), "checkpoints", "adapter_config.json: expected no such file"
    ),
    "model removed": Plant(removed("model"), "checkpoints", "expected the exported model, found none"),
    "weights of the initial model": Plant(_exported_base, "checkpoints", "found other weights", True),
    "configuration of the model": Plant(_exported_config, "checkpoints", "rms_norm_eps: expected 1e-06", True),
    # --- the configuration
    "samples per prompt": Plant(setting("samples_per_prompt = 4", "samples_per_prompt = 8"), "groups", "5, 6, 7]"),
    "prompts per step": Plant(
        setting("prompts_per_step = 6", "prompts_per_step = 5"), "files", "20 trajectories, found 24"
    ),
    "fewer steps": Plant(setting("steps = 2", "steps = 1"), "files", "at most 1 steps, found 2"),
    "more steps": Plant(setting("steps = 2", "steps = 3"), "files", "step_000002.jsonl: expected"),
    "template": Plant(
        setting('[data.template]\nname = "torl"', '[data.template]\nname = "none"'), "prompts", "prompt token"
    ),
    "tool calls": Plant(
        setting("max_tool_calls = 1", "max_tool_calls = 0"), "tokens", "exceeds rollout.max_tool_calls"
    ),
    "selection": Plant(
        setting('[selection.groups.zero_variance]\nname = "zero_variance"', ""),
        "selection",
        "expected 4 advantages",
    ),
    "estimator": Plant(
        setting('[algorithm.estimator]\nname = "grpo"', '[algorithm.estimator]\nname = "dr_grpo"'),
        "advantages",
        "again",
    ),
    "temperature": Plant(setting("temperature = 0.7", "temperature = 0.8"), "logprobs", "a logprob differs", True),
    "seed": Plant(setting("seed = 1", "seed = 7"), "prompts", "of the sampler (data.sampler, run.seed) at 0, found"),
    "learning rate": Plant(
        setting("learning_rate = 0.001", "learning_rate = 0.002"), "metrics", "expected 0.002, found 0.001"
    ),
    "schedule": Plant(
        setting('lr_schedule = "constant"', 'lr_schedule = "linear"'), "metrics", "step 1, learner/learning_rate"
    ),
    "mini-batches": Plant(
        setting("mini_batches = 1", "mini_batches = 2"), "metrics", "learner/updates: expected 2, found 1"
    ),
    "first step of the configuration": Plant(_first_line, "files", "expected a configuration of step 0"),
    # --- metrics
    "mean reward": Plant(metric("reward/mean", 0.99), "metrics", "reward/mean: expected"),
    "length": Plant(metric("response/tokens", 12.0), "metrics", "response/tokens: expected"),
    "trained groups": Plant(metric("data/trained_groups", 3), "metrics", "data/trained_groups: expected 6, found 3"),
    "masked trajectories": Plant(metric("selection/masked/void_turn", 24), "metrics", "void_turn: expected"),
    "staleness": Plant(metric("rollout/staleness_max", 1.0), "metrics", "staleness_max: expected 0, found 1"),
    "text as a metric": Plant(metric("reward/mean", "0.99"), "metrics", "found '0.99'"),
    "metric removed": Plant(
        rows(
            lambda lines: [{name: each[name] for name in each if name != "reward/solved"} for each in lines],
            "metrics.jsonl",
        ),
        "metrics",
        "reward/solved: expected",
    ),
    "evaluated accuracy": Plant(
        metric("evaluation/heldout/reward/accuracy", 0.5), "metrics", "evaluation/heldout/reward/accuracy: expected"
    ),
    "summary": Plant(_summary, "metrics", "summary.json, accuracy_after: expected"),
    "learned samples": Plant(metric("learner/samples", 99), "metrics", "learner/samples: expected"),
    "learned tokens": Plant(metric("learner/sampled_tokens", 9999), "metrics", "learner/sampled_tokens: expected"),
    "loss": Plant(metric("learner/loss", -0.5), "metrics", "learner/loss: expected"),
    "recorded learning rate": Plant(metric("learner/learning_rate", 1e-6), "metrics", "found 1e-06"),
    "clipping without a second update": Plant(
        metric("learner/clip_fraction", 1.0), "metrics", "learner/clip_fraction: expected 0, found 1"
    ),
    "divergence without a second update": Plant(
        metric("learner/approximate_kl", 0.5), "metrics", "learner/approximate_kl: expected 0, found 0.5"
    ),
    "tokens of the trained policy": Plant(
        metric("learner/on_policy_fraction", 0.5), "metrics", "learner/on_policy_fraction: expected 1, found 0.5"
    ),
    "mean gap": Plant(metric("learner/logprob_gap_mean", 9.0), "metrics", "learner/logprob_gap_mean: expected"),
    "no mean gap": Plant(metric("learner/logprob_gap_mean", -1.0), "metrics", "learner/logprob_gap_mean: expected"),
    "maximum gap": Plant(metric("learner/logprob_gap_max", 9.0), "metrics", "learner/logprob_gap_max: expected"),
    "divergence of the engine": Plant(
        metric("learner/logprob_gap_kl", 9.0), "metrics", "learner/logprob_gap_kl: expect"
    ),
    "gap of own tokens": Plant(
        metric("learner/logprob_gap_on_policy", 9.0), "metrics", "learner/logprob_gap_on_policy: expected"
    ),
    "all gaps": Plant(_all_gaps, "metrics", "learner/logprob_gap_mean: expected"),
    "no changed weights": Plant(metric("learner/changed_weights", 0.0), "metrics", "learner/changed_weights: expected"),
    "negative entropy": Plant(metric("learner/entropy", -0.5), "metrics", "learner/entropy: expected"),
    "epoch": Plant(metric("data/epoch", 9), "metrics", "data/epoch: expected 0, found 9"),
    "rounds": Plant(metric("selection/rounds", 9), "metrics", "selection/rounds: expected 1, found 9"),
    "unknown metric": Plant(added("foo/bar", 1.0), "metrics", "foo/bar: expected no value"),
    "metric of a critic": Plant(added("learner/critic_loss", 1.0), "metrics", "critic_loss: expected no value"),
    "metric of a correction": Plant(
        added("learner/importance_weight", 1.0), "metrics", "importance_weight: expected no"
    ),
    "count of an unknown tool": Plant(added("tool/bash/shared", 1.0), "metrics", "tool/bash/shared: expected no value"),
    "count of an agent": Plant(added("agent/turns", 1.0), "metrics", "agent/turns: expected no value"),
    "unknown metric of an evaluation": Plant(
        added("evaluation/heldout/foo", 1.0, "time/evaluation"), "metrics", "evaluation/heldout/foo: expected no value"
    ),
    "unknown part": Plant(added("reward/part/bonus", 1.0), "metrics", "reward/part/bonus: expected no value"),
    "evaluation in a row of a step": Plant(
        added("evaluation/heldout/reward/accuracy", 0.9), "metrics", "a step, an evaluation or a checkpoint, found"
    ),
    "accuracy of an unknown set": Plant(
        added("evaluation/aime/reward/accuracy", 0.9, "time/evaluation"), "metrics", "expected no problem set 'aime'"
    ),
    "row of no kind": Plant(
        rows(lambda lines: [*lines, {"step": 1, "reward/mean": 0.9}], "metrics.jsonl"), "metrics", "found {'step': 1"
    ),
    "too long prompts": Plant(
        metric("evaluation/heldout/problems/prompt_too_long", 1), "metrics", "prompt_too_long: expected 0, found 1"
    ),
    # --- prompts and problems
    "prompt tokens": Plant(value("prompt_token_ids", lambda ids: [ids[0] + 1, *ids[1:]]), "prompts", "prompt token"),
    "prompts reversed": Plant(rows(_reversed_prompts), "prompts", "expected prompt token"),
    "prompt cut": Plant(value("prompt_token_ids", lambda ids: ids[:-1]), "prompts", "prompt tokens, found"),
    "question": Plant(value("question", lambda text: f"{text} Hurry."), "prompts", "expected the question"),
    "reference answer": Plant(value("reference_answer", "123456"), "prompts", "expected the reference answer"),
    "reference answer of a right one": Plant(
        value("reference_answer", "123456", lambda each: each["correct"]), "rewards", "is correct: True"
    ),
    "unknown problem": Plant(
        rows(lambda lines: [{**each, "problem": "x", "group": "1/x"} for each in lines]),
        "prompts",
        "the unknown problem",
    ),
    "evaluated question": Plant(
        rows(lambda lines: lines[0].update(question="?"), EVALUATION), "prompts", "the question"
    ),
    "order of groups": Plant(rows(lambda lines: lines[4:8] + lines[:4] + lines[8:]), "prompts", "of the sampler"),
    "order of an evaluation": Plant(
        rows(lambda lines: lines[::-1], EVALUATION), "prompts", "of data.evaluation.heldout at 0, found"
    ),
    "steps exchanged": Plant(_steps_exchanged, "prompts", "of the sampler"),
    # --- tokens, turns, calls and outcomes
    "sampled token": Plant(row(_sampled_token), "tokens", "text"),
    "impossible token": Plant(row(_impossible_token), "tokens", "the text of turn 0"),
    "mask by one": Plant(row(_mask_by_one, calls), "tokens", "the loss mask is"),
    "observation in the loss": Plant(row(_all_masked_in, calls), "tokens", "the loss mask is True"),
    "observed token": Plant(row(_observed_token, calls), "tokens", "the observation of call 0"),
    "observed logprob": Plant(row(_observed_logprob, calls), "tokens", "an observation token has a logprob"),
    "observed version": Plant(row(_observed_version, calls), "tokens", "or a policy version"),
    "text": Plant(value("text", lambda text: f"{text}."), "tokens", "the text does not match"),
    "tool output": Plant(row(_printed, succeeded), "tokens", "does not match its outcome"),
    "format": Plant(value("format", "zerotir"), "tokens", "the format is 'zerotir', expected 'torl'"),
    "details": Plant(row(_details, succeeded), "tokens", "its text differs from the printed output"),
    "code": Plant(row(_code, calls), "tokens", "the request of call 0 differs"),
    "tool call removed": Plant(value("tool_calls", [], called), "tokens", "turn"),
    "turn boundary": Plant(row(_turn(0, stop=lambda stop: stop - 1)), "tokens", "the turns are at"),
    "text of a turn": Plant(row(_turn(-1, text=lambda text: f"{text}.")), "tokens", "the text of turn"),
    "end of a turn": Plant(row(_turn(0, stop_reason="stop"), called), "tokens", "turn 0 ended by stop, expected call"),
    "block removed": Plant(
        row(_turn(0, blocks=[]), lambda each: each["turns"][0]["blocks"]), "tokens", "has the blocks []"
    ),
    "finish reason": Plant(
        row(_truncated, lambda each: each["finish_reason"] == "stop"), "tokens", "finish reason is length"
    ),
    # --- policy versions
    "version of the future": Plant(row(_version(1)), "versions", "policy versions [1], expected 0 to 0"),
    "version too old": Plant(row(_version(-1), step=1), "versions", "policy versions [0], expected 1 to 1"),
    # --- rewards and advantages
    "reward flipped": Plant(value("reward", lambda reward: -reward), "rewards", "again"),
    "reward off by little": Plant(value("reward", lambda reward: reward + 1e-4), "rewards", "again"),
    "reward as a text": Plant(value("reward", str), "files", "reward: expected float, got"),
    "reward parts": Plant(row(_parts), "rewards", "parts"),
    "turn reward": Plant(
        row(lambda each: each.update(turn_rewards=[0.0] * len(each["turns"]))), "rewards", "turn rewards (0.0"
    ),
    "correct flag": Plant(value("correct", lambda correct: not correct), "rewards", "is correct"),
    "extracted answer": Plant(value("answer", "123456"), "rewards", "answer '123456'"),
    "advantage scaled": Plant(value("advantage", lambda number: number * 1.01, trained), "advantages", "again"),
    "advantage negated": Plant(value("advantage", lambda number: -number, trained), "advantages", "again"),
    "advantage that is not a number": Plant(
        value("advantage", float("nan"), trained), "files", "finite number, got nan"
    ),
    "advantages removed": Plant(rows(_no_advantages), "selection", "advantages, found 0 (the selection keeps it)"),
    "advantage removed": Plant(value("advantage", None, trained), "selection", "4 advantages, found 3"),
    "advantage of a dropped group": Plant(
        value("advantage", 0.0, dropped, step=1), "selection", "0 advantages, found 1 (the selection drops it)"
    ),
    "logprob above 0": Plant(row(_logprob_above_0), "tokens", "a log-probability is above 0"),
    "all logprobs above 0": Plant(_all_logprobs(lambda _: 0.5), "tokens", "a log-probability is above 0"),
    "logprob of the reference model above 0": Plant(
        row(_reference_above_0, trained), "tokens", "ref_logprobs has a log"
    ),
    # --- the learner's numbers of tokens
    "advantage that was trained with": Plant(token_numbers("advantages", -1), "updates", "another advantage"),
    "numbers of the learner removed": Plant(removed("tokens/step_000001.npz"), "updates", "recorded groups"),
    "numbers of the learner in the first step removed": Plant(
        removed("tokens/step_000000.npz"), "updates", "step 0: recorded groups"
    ),
    "all numbers of the learner removed": Plant(removed("tokens"), "updates", "step 0: recorded groups"),
    "numbers of a step that was not played": Plant(
        lambda run: shutil.copyfile(run / "tokens/step_000001.npz", run / "tokens/step_000007.npz"),
        "files",
        "tokens/step_000007.npz: expected no such file",
    ),
    "configuration of no start": Plant(
        lambda run: shutil.copyfile(run / "config.toml", run / "config.2.toml"),
        "files",
        "config.2.toml: expected no such file",
    ),
    "logprobs of the learner": Plant(token_numbers("learner_logprobs", 1.2), "logprobs", "differ", True),
    # --- log-probabilities, with weights
    "all logprobs": Plant(rows(_logprobs), "logprobs", "a logprob differs by 0.002", True),
    "one logprob": Plant(row(_one_logprob), "logprobs", "a logprob differs by 0.5", True),
    "logprobs of the reference model": Plant(rows(_reference_logprobs), "logprobs", "a logprob differs by 0.01", True),
    "start weights as the reference model": Plant(_reference_is_the_base_model, "logprobs", "(reference model /", True),
    "logprobs of a greedy evaluation": Plant(rows(_logprobs, EVALUATION), "logprobs", "differs by 0.002", True),
    "evaluation of another policy": Plant(_old_evaluation, "logprobs", "heldout-greedy/heldout-000", True),
}


def _limit_of_recorded_prompts(run: Path) -> None:
    """The limit leaves out problems, but none of the recorded ones."""
    records = (each for path in (run / "trajectories").iterdir() for each in read_rows(path))
    longest = max(len(each["prompt_token_ids"]) for each in records)
    setting("max_prompt_tokens = 400", f"max_prompt_tokens = {longest}")(run)


def _order_of_groups(lines: list[Row]) -> list[Row]:
    return lines[4:8] + lines[:4] + lines[8:]


CORRECTION = ("[algorithm.estimator]", '[algorithm.importance_correction]\nname = "tis"\n\n[algorithm.estimator]')
SETTINGS = {
    "top_p": (
        setting("top_p = 1.0", "top_p = 0.9"),
        Plant(_all_logprobs(lambda number: number * 1.5), "logprobs", "a logprob differs", True),
    ),
    "prompts that are too long": (
        setting("max_prompt_tokens = 400", "max_prompt_tokens = 64"),
        Plant(rows(_order_of_groups), "prompts", "a prompt of at most 64 tokens (max_prompt_tokens)"),
    ),
    "prompts of other problems that are too long": (
        _limit_of_recorded_prompts,
        Plant(rows(_order_of_groups), "prompts", "of the sampler"),
    ),
    "stale cache": (
        settings(
            ("max_staleness = 0", "max_staleness = 1"),
            ('on_weight_update = "recompute"', 'on_weight_update = "keep"'),
            CORRECTION,
        ),
        Plant(_all_logprobs(lambda number: number * 1.5), "logprobs", "a logprob differs", True),
    ),
    "shuffled rewards": (
        setting('shuffle = "none"', 'shuffle = "rewards"'),
        Plant(value("advantage", lambda number: number * 1.01, trained), "advantages", "again"),
    ),
    "imitation": (
        setting("[algorithm.estimator]", '[algorithm.imitation]\nname = "observations"\n\n[algorithm.estimator]'),
        Plant(metric("learner/samples", 99), "metrics", "learner/samples: expected"),
    ),
    "recorded groups": (
        setting("token_groups = 2", "token_groups = 0"),
        Plant(token_numbers("advantages", -1), "updates", "recorded groups: expected []"),
    ),
    "precision of the engine": (
        setting('[engine]\nname = "vllm"\ndtype = "float32"', '[engine]\nname = "vllm"\ndtype = "bfloat16"'),
        Plant(row(_one_logprob, trained), "logprobs", "a logprob differs by 0.5", True),
    ),
    "correction": (
        settings(CORRECTION),
        Plant(metric("learner/loss", -0.5), "updates", "an importance weight that does not follow"),
    ),
}
"""Settings that leave out or weaken a check, each with a mistake of the records that the check finds without them."""
SEALED = {
    "moments": (_shards(no_moments), f"{CHECKPOINT}/manifest.json: has changed since it was written"),
    "summary removed": (removed("summary.json"), "summary.json: cannot be read: No such file or directory"),
}
"""Plants that only the receipt finds: a run may have been killed before its summary."""
PRUNED = ("checkpoints removed", "checkpoint removed", "manifest removed")
"""Plants that the receipt alone does not find, since a run removes old checkpoints."""


def _before_the_row(run: Path) -> None:
    """The run stopped after it wrote the trajectories of its last step."""
    removed("summary.json", "checkpoints/step_000002", "model", EVALUATION)(run)
    rows(lambda lines: lines[: next(i for i, each in enumerate(lines) if _is_step(each, 1))], "metrics.jsonl")(run)


def _before_the_last_step(run: Path) -> None:
    _before_the_row(run)
    removed("tokens/step_000001.npz")(run)
    step_file(run).unlink()


def _before_the_first_step(run: Path) -> None:
    _before_the_last_step(run)
    removed("checkpoints", "trajectories/step_000000.jsonl", "tokens")(run)
    rows(lambda lines: lines[:1], "metrics.jsonl")(run)


def _before_the_last_checkpoint(run: Path) -> None:
    removed("summary.json", "checkpoints/step_000002", "model")(run)


def _is_step(each: Row, step: int) -> bool:
    return each["step"] == step and "time/step" in each


UNFINISHED = {
    "before the first step": _before_the_first_step,
    "before the last step": _before_the_last_step,
    "before the metrics of the last step": _before_the_row,
    "before the last checkpoint": _before_the_last_checkpoint,
}
"""Changes that make a finished run look like a run in progress, or one that was killed."""
