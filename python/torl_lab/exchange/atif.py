"""ATIF, the Agent Trajectory Interchange Format of Harbor, version 1.8; files of versions 1.0 to 1.8 are read.

A turn is a step of the agent with its token ids and log-probabilities; what ATIF has no field for is in `extra.torl`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torl.base.inputs import parse_json, read_file
from torl.base.version import __version__
from torl.run.records.files import atomic_write
from torl_lab.exchange.logs import json_lines
from torl_lab.exchange.messages import add_turn, add_user_message, call_row, new_row, text_of
from torl_lab.exchange.tokens import Decode, TokenSequence

SCHEMA_VERSION: Final = "ATIF-v1.8"
_OF_CALLS: Final = frozenset({"tool", "arguments", "observation", "start", "stop"})
_OF_TURNS: Final = frozenset({"start", "stop", "text", "cached_tokens"})
_OF_ROWS: Final = frozenset(
    {
        *("question", "tool_calls", "turns", "user_messages", "branches"),
        *("prompt_token_ids", "token_ids", "loss_mask", "rollout_logprobs"),
    }
)
"""The fields of a row, and of its turns and calls, that follow from fields of ATIF. The others are kept in `extra`."""
_FIELDS: Final = {
    kind: frozenset(names.split())
    for kind, names in {
        "trajectory": "schema_version session_id trajectory_id agent steps notes final_metrics "
        "continued_trajectory_ref extra subagent_trajectories",
        "step": "step_id timestamp source model_name reasoning_effort message reasoning_content tool_calls "
        "observation metrics is_copied_context llm_call_count extra",
        "call": "tool_call_id function_name arguments extra",
        "observation": "results",
        "result": "source_call_id content subagent_trajectory_ref extra",
        "reference": "trajectory_id session_id trajectory_path extra",
        "metrics": "prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids completion_token_ids "
        "logprobs extra",
    }.items()
}
"""The fields of each object in version 1.8, which allows no others. Names, times and costs have no place in a row."""
_REFERENCES: Final = "subagent_trajectory_ref"
_PER_TOKEN: Final = frozenset({"policy_versions", "token_numbers"})


def read_atif(path: Path, _: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the trajectory of a document, or one of each line."""
    try:
        documents = [parse_json(read_file(path))]
    except ValueError:
        documents = list(json_lines(path))
    for number, document in enumerate(documents):
        yield row_from_atif(document, f"{path.stem}-{number}")


def atif_from_row(row: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
    """Return a row of a trajectory file as a document of ATIF. Branches of an agent are `subagent_trajectories`."""
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": row["question"]}]
    ids, logprobs, prompt = row["token_ids"], row["rollout_logprobs"], row["prompt_token_ids"]
    for turn in row["turns"]:
        start, stop = turn["start"], turn["stop"]
        step: dict[str, Any] = {"step_id": len(steps) + 1, "source": "agent", "message": turn["text"]}
        own = [(number, call) for number, call in enumerate(row["tool_calls"]) if call["start"] == stop]
        asked = [message["text"] for message in row.get("user_messages", ()) if message["start"] == stop]
        ran = [(number, call) for number, call in own if call["tool"] is not None]
        if ran:
            step["tool_calls"] = [
                {"tool_call_id": f"call_{number}", "function_name": call["tool"], "arguments": call["arguments"] or {}}
                for number, call in ran
            ]
        if own:
            is_shared = len(own) + len(asked) > 1
            step["observation"] = {"results": [_result(number, call, is_shared=is_shared) for number, call in own]}
        if ids:
            step["metrics"] = {
                "prompt_tokens": len(prompt) + start,
                "completion_tokens": stop - start,
                "cached_tokens": min(turn["cached_tokens"], len(prompt) + start),
                "prompt_token_ids": [*prompt, *ids[:start]],
                "completion_token_ids": ids[start:stop],
                "logprobs": logprobs[start:stop],
            }
        step["llm_call_count"] = 1
        step["extra"] = {"torl": {name: turn[name] for name in turn if name not in ("text", "cached_tokens")}}
        steps.append(step)
        for text in asked:
            steps.append({"step_id": len(steps) + 1, "source": "user", "message": text})
    last = max((turn["stop"] for turn in row["turns"]), default=0)
    kept = {name: row[name] for name in row if name not in _OF_ROWS}
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": f"{row['group']}/{row['sample']}",
        "trajectory_id": f"{row['step']}/{row['group']}/{row['sample']}",
        "agent": {"name": "torl", "version": __version__, **({"model_name": model} if model else {})},
        "steps": steps,
        "final_metrics": {
            "total_completion_tokens": sum(length for value, length in row["loss_mask"] if value),
            "total_steps": len(steps),
        },
        "extra": {"torl": {**kept, "last_token_ids": ids[last:]}},
    }
    if row.get("branches"):
        branches = (atif_from_row(branch, model) for branch in row["branches"])
        document["subagent_trajectories"] = [
            branch | {"trajectory_id": f"{branch['trajectory_id']}/{number}"} for number, branch in enumerate(branches)
        ]
    return document


def write_atif(directory: Path, rows: Iterator[Mapping[str, Any]], model: str | None = None) -> int:
    """Write a file of ATIF for each row into a directory, and return their number.

    Raises:
        RecordError: A file could not be written.
    """
    count = 0
    for count, row in enumerate(rows, start=1):
        with atomic_write(directory / f"trajectory_{count:06d}.json") as file:
            document = json.dumps(atif_from_row(row, model), ensure_ascii=False, allow_nan=False, indent=1)
            file.write(document.encode("utf-8", errors="backslashreplace"))
    return count


def row_from_atif(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a document as a row of a trajectory file.

    Token ids and log-probabilities are taken if each step has them and continues the one before it. Steps that were
    copied for context, or made without the model, are not turns. References to trajectories in other files are in the
    details of their call; a document that continues in another file has a `grader_failure`.

    The name is that of the problem of a document without an id.

    Raises:
        KeyError, TypeError, ValueError: The document is not ATIF, has unknown fields, or refers to a trajectory that is
            nowhere.
    """
    _check_fields(document)
    kept = _kept(document)
    steps: Sequence[Mapping[str, Any]] = document["steps"]
    first = next((index for index, step in enumerate(steps) if _is_turn(step)), len(steps))
    question = "\n\n".join(text_of(step["message"]) for step in steps[:first] if step["source"] != "system")
    problem = str(document.get("session_id") or document.get("trajectory_id") or name)
    reward = {**_extra(document), **_extra(document.get("final_metrics") or {})}.get("reward")
    reward = reward if isinstance(reward, int | float) else 0.0
    row = new_row(problem=problem, question=question, reference=None, reward=reward)
    tokens = _read_tokens(steps, kept)
    spans = iter(() if tokens is None else tokens.spans)
    texts, stop, after = list[str](), 0, 0
    for step in steps[first:]:
        text = text_of(step["message"])
        if _is_turn(step):
            if reasoning := step.get("reasoning_content"):
                text = f"{reasoning}\n{text}"
            start, stop, after = next(spans, (after, after + 1, after + 2))
            add_turn(row, text, start, stop, "call" if step.get("tool_calls") else "stop")
            row["turns"][-1] |= {field: value for field, value in _kept(step).items() if field not in _OF_TURNS}
        else:
            add_user_message(row, text, stop, after)
        texts += [text, *_add_calls(row, step, stop, after)]
    if continuation := document.get("continued_trajectory_ref"):
        row["grader_failure"] = f"continues in {continuation}"
    row["text"] = "\n".join(texts)
    row["sampled_text"] = "\n".join(turn["text"] for turn in row["turns"])
    row |= {} if tokens is None else tokens.fields()
    left_out = _OF_ROWS | {"last_token_ids"} | (_PER_TOKEN if tokens is None else frozenset())
    row |= {field: kept[field] for field in kept if field not in left_out}
    if branches := document.get("subagent_trajectories"):
        row["branches"] = [row_from_atif(branch, f"{name}/{number}") for number, branch in enumerate(branches)]
    return row


def _check_fields(document: Mapping[str, Any]) -> None:
    """Check that a document has no unknown fields, and only references to trajectories that are somewhere."""
    embedded = {each.get("trajectory_id") for each in document.get("subagent_trajectories") or ()}
    objects = [("trajectory", document)]
    for step in document["steps"]:
        observation = step.get("observation") or {}
        results = observation.get("results") or ()
        references = [each for result in results for each in result.get(_REFERENCES) or ()]
        for each in references:
            identity = each.get("trajectory_id")  # before version 1.7, a session instead
            elsewhere = each.get("trajectory_path") or (identity is None and each.get("session_id"))
            if not elsewhere and identity not in embedded - {None}:
                raise ValueError(f"{_REFERENCES}: no trajectory has the id {identity!r}")
        objects += [("step", step), ("metrics", step.get("metrics") or {}), ("observation", observation)]
        objects += [("call", each) for each in step.get("tool_calls") or ()]
        objects += [("result", each) for each in results]
        objects += [("reference", each) for each in references]
    for kind, each in objects:
        if unknown := sorted(each.keys() - _FIELDS[kind]):
            raise ValueError(f"a {kind} has the field {unknown[0]!r}, which {SCHEMA_VERSION} does not have")


def _is_turn(step: Mapping[str, Any]) -> bool:
    """Whether the model made a step, in this trajectory."""
    return step["source"] == "agent" and not step.get("is_copied_context") and step.get("llm_call_count") != 0


def _read_tokens(steps: Sequence[Mapping[str, Any]], kept: Mapping[str, Any]) -> TokenSequence | None:
    """Return the tokens of the steps of the agent as one sequence; None unless each step continues the one before."""
    tokens = TokenSequence()
    for step in steps:
        if not _is_turn(step):
            continue
        metrics = step.get("metrics") or {}
        before, sampled, logprobs = (
            metrics.get(name) for name in ("prompt_token_ids", "completion_token_ids", "logprobs")
        )
        if not isinstance(before, list) or not isinstance(sampled, list) or not isinstance(logprobs, list):
            return None
        known = [*tokens.prompt, *tokens.ids]
        if len(logprobs) != len(sampled) or before[: len(known)] != known:
            return None
        tokens.add_observation(before[len(known) :])
        tokens.add_turn(sampled, logprobs)
    tokens.add_observation(kept.get("last_token_ids", ()))
    return tokens if tokens.spans else None


def _add_calls(row: dict[str, Any], step: Mapping[str, Any], start: int, stop: int) -> Iterator[str]:
    """Add the calls of a step, and its observations without a call, and yield their results."""
    results = {each.get("source_call_id"): each for each in (step.get("observation") or {}).get("results") or ()}
    calls = [
        (call["function_name"], call["arguments"], results.pop(call["tool_call_id"], {}))
        for call in step.get("tool_calls") or ()
    ]
    for tool, arguments, result in [*calls, *((None, None, each) for each in results.values())]:
        text = text_of(result.get("content"))
        call = {**call_row(tool, arguments, text, start, stop), **_kept(result)}
        if references := result.get(_REFERENCES):
            call["details"] = {**call["details"], _REFERENCES: references}
        row["tool_calls"].append(call)
        yield text


def _kept(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of torl of an object."""
    kept: Mapping[str, Any] = _extra(found).get("torl", {})
    return kept


def _extra(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return found.get("extra") or {}


def _result(number: int, call: Mapping[str, Any], *, is_shared: bool) -> dict[str, Any]:
    """Return the result of a call: its own text if its observation holds other results or messages, too."""
    own = {name: call[name] for name in call if name not in _OF_CALLS}
    own |= {"observation": call["observation"]} if is_shared else {}
    identity = {} if call["tool"] is None else {"source_call_id": f"call_{number}"}
    return {**identity, "content": call["text" if is_shared else "observation"], "extra": {"torl": own}}
