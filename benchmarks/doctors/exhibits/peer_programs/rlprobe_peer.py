"""rlprobe on the numbers of a run, after each step, from step 10 on instead of 30. Reads and writes JSON."""

import json
import sys

from rlprobe.doctor.base import REGISTRY
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

NAMES = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "reward_min": "reward_min",
    "reward_max": "reward_max",
    "kl": "kl_mean",
    "entropy": "entropy_mean",
    "clip_ratio/region_mean": "clip_fraction",
    "advantages_mean": "adv_mean",
    "advantages_std": "adv_std",
    "group_reward_std": "group_reward_std_mean",
    "frac_reward_zero_std": "zero_variance_group_frac",
    "loss": "loss",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "completions/mean_length": "completion_len_mean",
    "completions/max_length": "completion_len_max",
    "completions/clipped_ratio": "truncation_rate",
    "step_time": "step_time_s",
}

for detector in REGISTRY:
    detector.min_steps = 10
rows = json.load(sys.stdin)["rows"]
records = [StepRecord(step=row["step"], **{NAMES[name]: row[name] for name in NAMES if name in row}) for row in rows]
manifest = RunManifest(run_id="run", created_at="2026-01-01T00:00:00Z", algorithm="grpo")
named: dict[str, int] = {}
for count in range(1, len(records) + 1):
    for finding in diagnose_view(RunView(manifest, records[:count])):
        named.setdefault(finding.signature_id, count)
print(json.dumps(named))
