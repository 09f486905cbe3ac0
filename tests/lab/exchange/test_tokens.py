"""Files of other libraries with token ids in their own shapes: verifiers' traces, the dumps of slime and miles."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreign_files import CONVERSATION, QUESTION, episode, node, sample
from torl.base.errors import DataError, RecordError
from torl.run.records.rows import decode_trajectory
from torl_lab.exchange import foreign_format, model_decoder, read_foreign

MODEL = "torl:demo/base_model"


def read_lines(path: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert foreign_format(path) == "verifiers"
    return list(read_foreign(path))


def test_trace_keeps_tokens_numbers_turns_and_calls(tmp_path: Path) -> None:
    [row, again] = read_lines(tmp_path / "traces.jsonl", episode(CONVERSATION), episode(CONVERSATION))
    assert row["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert row["token_ids"] == [10, 11, 12, 13, 5, 14, 15, 16]
    assert row["loss_mask"] == [[True, 2], [False, 3], [True, 3]]
    assert row["rollout_logprobs"] == [-0.5, -1.0, 0.0, 0.0, 0.0, -0.5, -1.0, -1.5]
    assert row["policy_versions"] == [[5, 2], [-1, 3], [5, 3]]
    assert row["token_numbers"] == {"entropies": [0.1, 0.2, 0.0, 0.0, 0.0, 0.3, 0.4, 0.5]}
    assert [(turn["start"], turn["stop"], turn["stop_reason"]) for turn in row["turns"]] == [
        (0, 2, "call"),
        (5, 8, "stop"),
    ]
    [made] = row["tool_calls"]
    assert (made["tool"], made["arguments"], made["text"]) == ("python", {"code": "print(1 + 1)"}, "2\n")
    assert (made["start"], made["stop"]) == (2, 5)
    assert (row["question"], row["reference_answer"], row["problem"], row["step"]) == (QUESTION, "2", "4", 7)
    assert row["reward"] == pytest.approx(1.1)
    assert row["reward_parts"] == pytest.approx({"correct": 1.0, "format": 0.1})
    assert (row["group"], row["sample"], again["sample"], row["seconds"]) == ("g", 0, 1, 1.5)
    decode_trajectory(row)


def test_trace_of_an_api_has_turns_without_tokens(tmp_path: Path) -> None:
    plain = [each | {"token_ids": [], "mask": [], "logprobs": []} for each in CONVERSATION]
    single = episode(plain)["traces"][0] | {"stop_condition": "max_turns", "rewards": {"correct": None}}
    [row] = read_lines(tmp_path / "traces.jsonl", single)
    assert (row["token_ids"], len(row["turns"]), row["finish_reason"]) == ([], 2, "turns")
    assert row["grader_failure"] == "no reward"
    decode_trajectory(row)


def test_leaves_of_a_trace_are_branches_that_share_no_turn(tmp_path: Path) -> None:
    fork = node(2, {"role": "user", "content": "Shorter."}, [20])
    other = node(5, {"role": "assistant", "content": "2"}, [5, 21], 1, entropies=[0.1])
    [row] = read_lines(tmp_path / "traces.jsonl", episode([*CONVERSATION, fork, other]))
    [branch] = row["branches"]
    assert branch["token_ids"] == [10, 11, 12, 13, 5, 14, 15, 16]
    assert (row["prompt_token_ids"], row["token_ids"]) == ([1, 2, 3, 4, 5, 10, 11, 20, 5], [21])
    assert [turn["text"] for turn in row["turns"]] == ["2"]
    decode_trajectory(row)


def test_broken_graph_of_a_trace_is_a_clear_error(tmp_path: Path) -> None:
    loop = [each | {"parent": 1 - place} for place, each in enumerate(CONVERSATION[:2])]
    with pytest.raises(RecordError, match="no path to a root"):
        read_lines(tmp_path / "traces.jsonl", episode([*loop, CONVERSATION[2] | {"parent": 1}]))


# --- slime and miles --------------------------------------------------------------------------------------------------


def read_samples(path: Path, *samples: dict[str, Any], model: str | None = None) -> list[dict[str, Any]]:
    torch.save({"rollout_id": 12, "samples": list(samples)}, path)
    rows = list(read_foreign(path, None if model is None else model_decoder(model)))
    for row in rows:
        decode_trajectory(row)
    return rows


def test_dump_keeps_tokens_versions_and_rewards(tmp_path: Path) -> None:
    graded = sample(reward={"score": -1.0, "acc": np.float64(0), "pred": "3"}, status="truncated", index=7)
    spans = [[{"version": "8", "abs_start": 2, "abs_end": 4}, {"version": "9", "abs_start": 4, "abs_end": 5}]]
    first, second = read_samples(tmp_path / "12.pt", sample(), graded | {"weight_versions": spans})
    assert (first["step"], first["prompt_token_ids"], first["token_ids"]) == (12, [1, 2], [10, 11, 12])
    assert (first["policy_versions"], second["policy_versions"]) == ([[8, 3]], [[8, 2], [9, 1]])
    assert first["rollout_logprobs"] == pytest.approx([-0.1, -0.2, -0.3])
    assert (first["correct"], second["correct"], second["reward"]) == (True, False, -1.0)
    assert (first["group"], first["sample"], second["group"], second["sample"]) == ("12/12/3", 0, "12/12/3", 1)
    assert (first["finish_reason"], second["finish_reason"]) == ("stop", "length")
    assert (first["question"], first["reference_answer"], first["text"]) == (QUESTION, "2", "It is 2.")


def test_tokenizer_separates_the_turns_of_a_dump(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from torl.base.paths import resolve_path

    encode = Tokenizer.from_file(str(resolve_path(MODEL) / "tokenizer.json")).encode
    pieces = ["x = 1 + 1", "\n2\n", "The answer is 2."]
    ids = [encode(piece, add_special_tokens=False).ids for piece in pieces]
    mask = [value for value, each in zip((1, 0, 1), ids, strict=True) for _ in each]
    several = sample(
        tokens=[1, *(token for each in ids for token in each)],
        response="".join(pieces),
        response_length=len(mask),
        loss_mask=mask,
        rollout_log_probs=[-0.25 * value for value in mask],
        weight_versions=["4", "5"],
    )
    [row] = read_samples(tmp_path / "12.pt", several, model=MODEL)
    assert [turn["text"] for turn in row["turns"]] == [pieces[0], pieces[2]]
    assert [message["text"] for message in row["user_messages"]] == [pieces[1]]
    lengths = [len(each) for each in ids]
    assert row["loss_mask"] == [[value, length] for value, length in zip((True, False, True), lengths, strict=True)]
    assert row["policy_versions"] == [[version, length] for version, length in zip((4, -1, 5), lengths, strict=True)]
    [whole] = read_samples(tmp_path / "12.pt", several)
    assert [(turn["start"], turn["stop"], turn["text"]) for turn in whole["turns"]] == [(0, len(mask), "".join(pieces))]
    assert whole["loss_mask"] == row["loss_mask"]


def test_dump_without_log_probabilities_has_texts_only(tmp_path: Path) -> None:
    aborted = sample(rollout_log_probs=None, reward=None, status="aborted", prompt=[{"role": "user", "content": "Q"}])
    [row] = read_samples(tmp_path / "12.pt", aborted)
    assert (row["token_ids"], row["question"], row["grader_failure"]) == ([], "Q", "aborted")
    assert [turn["text"] for turn in row["turns"]] == ["It is 2."]


def test_dump_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "attacked"),)

    torch.save({"rollout_id": 0, "samples": [sample(metadata={"x": Attack()})]}, tmp_path / "0.pt")
    with pytest.raises(RecordError, match="not only plain data"):
        list(read_foreign(tmp_path / "0.pt"))
    assert not (tmp_path / "attacked").exists()
    torch.save(torch.zeros(2), tmp_path / "weights.pt")
    with pytest.raises(RecordError, match="no list of samples"):
        list(read_foreign(tmp_path / "weights.pt"))
    (tmp_path / "torn.pt").write_bytes((tmp_path / "0.pt").read_bytes()[:300])
    with pytest.raises(RecordError, match=r"torn\.pt"):
        list(read_foreign(tmp_path / "torn.pt"))


def test_unknown_tokenizer_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no tokenizer\.json"):
        model_decoder(str(tmp_path))
