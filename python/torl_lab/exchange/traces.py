"""The rollouts of verifiers: `traces.jsonl`, and the `results.jsonl` of earlier versions.

A line of `traces.jsonl` is an episode with the traces of its agents, or a single trace. A trace is a graph of messages.
Its path to the last leaf is the trajectory, the paths to other leaves are branches. A message that several paths share
is a turn of the first one, and belongs to the prompt of the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from torl.base.types import FinishReason
from torl_lab.exchange.logs import first_object, json_lines, numbers_of, row_of_completion
from torl_lab.exchange.messages import REFERENCES, add_messages, new_row, number_samples, question_of
from torl_lab.exchange.tokens import Decode, TokenSequence

_Node: TypeAlias = Mapping[str, Any]
# Their names of numbers of the sampled tokens, and ours.
_NUMBERS: Final = {
    "advantages": "advantages",
    "trainer_logprobs": "learner_logprobs",
    "reference_logprobs": "ref_logprobs",
    "entropies": "entropies",
}
_TOKEN_LIMITS: Final = frozenset({"max_input_tokens", "max_output_tokens", "max_total_tokens"})


def read_verifiers(path: Path, _: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the rollouts of a file.

    Raises:
        KeyError, TypeError, ValueError: A line is neither an episode, a trace nor a result.
    """
    read = _rows_of_traces if is_trace(first_object(path)) else _rows_of_results
    return number_samples(read(json_lines(path)))


def is_trace(line: Mapping[str, Any]) -> bool:
    """Whether a line is an episode or a trace."""
    return isinstance(line.get("task"), Mapping) and isinstance(line.get("nodes", line.get("traces")), list)


def _rows_of_results(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines):
        problem = str(line.get("example_id", line.get("id", number)))
        row = row_of_completion(line, problem, float(line["reward"] or 0.0))
        metrics = line.get("metrics")
        yield row | ({"reward_parts": numbers_of(metrics)} if isinstance(metrics, Mapping) else {})


def _rows_of_traces(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in lines:
        traces: Sequence[Mapping[str, Any]] = line.get("traces", [line])
        for trace in traces:
            agent = str((trace.get("agent") or {}).get("name", "")) if len(traces) > 1 else ""
            yield _row(trace, line, f" ({agent})" if agent else "")


def _row(trace: Mapping[str, Any], line: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    task: Mapping[str, Any] = trace["task"]
    data: Mapping[str, Any] = task["data"]
    rewards = {name: each for name, each in (trace.get("rewards") or {}).items() if each is not None}
    parts = {name: float(each["score"]) * float(each.get("weight", 1.0)) for name, each in rewards.items()}
    name = next((data[name] for name in ("id", "name", "idx") if data.get(name) is not None), task.get("key"))
    group = (line.get("group") or {}).get("id")
    work = (line.get("run") or {}).get("work") or {}
    row = new_row(
        problem=f"{trace['id'] if name is None else name}{suffix}",
        question=question_of(data.get("prompt")),
        reference=next((data[name] for name in REFERENCES if data.get(name) is not None), None),
        reward=sum(parts.values()),
        step=int(work.get("step", 0)),
        group=None if group is None else f"{group}{suffix}",
        parts=parts,
    )
    row["finish_reason"] = _finish_reason(trace)
    span = (trace.get("timing") or {}).get("agent") or {}
    row["seconds"] = max(0.0, float(span.get("end", 0.0)) - float(span.get("start", 0.0)))
    errors = trace.get("errors") or []
    if errors and not trace.get("ok", True):
        row["grader_failure"] = str(errors[-1]["type"])
    elif not rewards:
        row["grader_failure"] = "no reward"
    version = int((work.get("policy") or {}).get("start", 0))
    *branches, main = [_with_path(row, *path, version) for path in _paths(trace["nodes"])] or [row]
    return main | ({"branches": branches} if branches else {})


def _paths(nodes: Sequence[_Node]) -> Iterator[tuple[list[_Node], list[_Node]]]:
    """Yield the prompt of each leaf, and the nodes from its first own turn on."""
    parents = {node.get("parent") for node in nodes}
    known: set[int] = set()
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            if at in path or not 0 <= at < len(nodes):
                raise ValueError(f"message {leaf} has no path to a root")
            path.insert(0, at)
            at = nodes[at].get("parent")
        own = (place for place, node in enumerate(path) if nodes[node].get("sampled") and node not in known)
        first = next(own, len(path))
        known.update(path)
        yield [nodes[node] for node in path[:first]], [nodes[node] for node in path[first:]]


def _with_path(
    row: Mapping[str, Any], prompt: Sequence[_Node], response: Sequence[_Node], version: int
) -> dict[str, Any]:
    question = row["question"] or question_of([node["message"] for node in prompt])
    found = {**row, "turns": [], "tool_calls": [], "question": question}
    tokens = _tokens(prompt, response, version)
    add_messages(found, [_message(node) for node in response], () if tokens is None else tokens.spans)
    return found if tokens is None else found | tokens.fields()


def _tokens(prompt: Sequence[_Node], response: Sequence[_Node], version: int) -> TokenSequence | None:
    """Return the tokens of a path; None if a turn lacks tokens, as with an API that returns none."""
    turns = [node for node in response if node.get("sampled")]
    if not turns or not all(node.get("logprobs") and True in node.get("mask", ()) for node in turns):
        return None
    numbers = {ours: theirs for theirs, ours in _NUMBERS.items() if all(node.get(theirs) is not None for node in turns)}
    tokens = TokenSequence()
    for node in prompt:
        tokens.add_observation(node.get("token_ids", ()))
    for node in response:
        ids, mask = node.get("token_ids", []), node.get("mask", [])
        if not node.get("sampled"):
            tokens.add_observation(ids)
            continue
        start, stop = mask.index(True), len(mask) - mask[::-1].index(True)
        if len(ids) != len(mask) or not all(mask[start:stop]):
            raise ValueError("the mask of a turn is not one span of its tokens")
        tokens.add_observation(ids[:start])  # the tokens that open the turn
        own = {ours: node[theirs] for ours, theirs in numbers.items()}
        tokens.add_turn(ids[start:stop], node["logprobs"], [version] * (stop - start), own)
        tokens.add_observation(ids[stop:])
    return tokens


def _message(node: _Node) -> Mapping[str, Any]:
    """Return the message of a node. One that the model did not sample is the environment's, in any role."""
    message: Mapping[str, Any] = node["message"]
    return {**message, "role": "user"} if message["role"] == "assistant" and not node.get("sampled") else message


def _finish_reason(trace: Mapping[str, Any]) -> str:
    calls = [call for call in trace.get("calls") or () if not call.get("error")]
    if trace.get("stop_condition") == "max_turns":
        return FinishReason.MAX_TURNS.value
    cut = trace.get("stop_condition") in _TOKEN_LIMITS or bool(calls and calls[-1].get("finish_reason") == "length")
    return (FinishReason.LENGTH if cut else FinishReason.STOP).value
