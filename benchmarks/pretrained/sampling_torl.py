"""torl's side of `speed.py` for sampling: `Policy.sample` without calls, from problems to graded responses.

It writes the requests of its last round, which vLLM's side makes again, and their samples, which the learners train on.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import torl
from benchmarks.learner.train_step_problem import Sample, serve, write_samples
from benchmarks.pretrained.sampling import MAX_PROMPT_TOKENS, REQUESTS, SAMPLES, add_sampling_options, engine_peak_bytes
from torl.base.paths import resolve_path
from torl.base.seeds import derive_seed
from torl.base.types import Problem
from torl.rollout.sampling import BATCH_ID
from torl.run.records.reading import read_rows
from torl.training.samples import training_samples

SEED = 0


def main() -> None:
    """Answer turns until there are no more, each with problems that no other has had."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_sampling_options(parser)
    parser.add_argument("--prompts", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--template", required=True)
    arguments = parser.parse_args()
    rows = list(read_rows(resolve_path("torl:demo/problems/train.jsonl")))
    problems = iter([Problem(row["id"], row["problem"], row["answer"]) for row in rows])
    policy = torl.Policy(
        arguments.directory / "model",
        extends="demo",
        data={"template": arguments.template, "max_prompt_tokens": MAX_PROMPT_TOKENS},
        rollout={"max_response_tokens": arguments.response_tokens, "max_tool_calls": 0},
        engine={
            "dtype": arguments.dtype,
            "cpu_threads": arguments.threads,
            "max_sequences": arguments.max_sequences,
            "cpu_kv_cache_gib": arguments.cache_gib,
        },
    )

    def step() -> dict[str, float]:
        asked = [next(problems) for _ in range(arguments.prompts)]
        groups = policy.sample(asked, samples_per_problem=arguments.samples, seed=SEED)
        write_round(groups, arguments.directory)
        tokens = sum(int(member.trajectory.loss_mask_T.sum()) for group in groups for member in group.members)
        return {"tokens": tokens, "engine_peak_bytes": engine_peak_bytes(os.getpid())}

    with policy:
        serve(step)


def write_round(groups: torl.SampledGroups, directory: Path) -> None:
    """Write the requests of a round with their responses, and the samples that they give, with random advantages."""
    requests, samples = [], list[Sample]()
    random = np.random.default_rng(SEED)
    for group in groups:
        prompt = group.prompt.token_ids
        for index, sample in enumerate(training_samples(group.members)):
            response = sample.token_ids[len(prompt) :].tolist()
            seed = derive_seed(SEED, BATCH_ID, group.prompt.problem.id, index, 0)
            requests.append({"prompt": prompt, "seed": seed, "response": response})
            advantage = float(random.normal())
            samples.append(Sample(sample.token_ids, len(prompt), sample.loss_mask, sample.rollout_logprobs, advantage))
    (directory / REQUESTS).write_text(json.dumps(requests))
    write_samples(samples, directory / SAMPLES)


if __name__ == "__main__":
    main()
