"""martingale on the recorded tokens of a run, after each step. Reads and writes JSON."""

import json
import sys
import tempfile

from martingale.diagnostics import AlarmConfig, AlarmHistory, IncrementalDiagnosis, evaluate
from martingale.record import Recorder, SamplerConfig

given = json.load(sys.stdin)
sequences = given["tokens"]
named: dict[str, int] = {}
with tempfile.TemporaryDirectory() as directory:
    recorder = Recorder(directory)
    diagnosis, history = IncrementalDiagnosis(recorder.ledger), AlarmHistory()
    sampler = SamplerConfig(
        temperature=given["temperature"], logprobs_mode="processed_logprobs", temperature_applied=True
    )
    for count, step in enumerate(sorted({each["step"] for each in sequences}), 1):
        chosen = [each for each in sequences if each["step"] == step]
        revision = recorder.publish_revision(chosen[0]["weights"], "0" * 64, sampler, step=step)
        for each in chosen:
            with recorder.sequence(0, each["id"], each["prompt"]) as sequence:
                for token, logprob in zip(each["ids"], each["engine"], strict=True):
                    sequence.token(revision.digest, token, logprob)
                sequence.reward(each["reward"])
            recorder.score(sequence.record.digest, revision.digest, each["learner"])
        for alarm in evaluate(diagnosis.update(step), history, AlarmConfig()):
            named.setdefault(alarm.kind, count)
print(json.dumps(named))
