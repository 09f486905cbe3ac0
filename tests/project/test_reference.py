"""The reference pages: written from the code, and complete."""

import importlib.util
import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import torl
import torl.base.errors
from scripted_environment import ScriptedEnvironment
from torl.base.types import TrainingSample
from torl.components.environments.bounded import BoundedEnvironment
from torl.components.tools.python import _COUNTS, PythonTool
from torl.components.tools.wrappers import BoundedTool, ToolLimits
from torl.learner.batch import pack_batch
from torl.learner.objective import ImitatedTensors, RowTensors, policy_objective, value_objective, with_imitation
from torl.learner.optimizer_steps import _report
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.help import settings_of
from torl.run.records import metric_names

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_reference.py"
spec = importlib.util.spec_from_file_location("write_reference", SCRIPT)
assert spec is not None
assert spec.loader is not None
write_reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_reference)
PAGES: dict[str, str] = write_reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_current(name: str) -> None:
    """If it fails: make reference."""
    assert (write_reference.FOLDER / name).read_text(encoding="utf-8") == PAGES[name]


def test_settings_page_lists_every_setting_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| \**`([a-z_.0-9*]+)`\** \|.*\| (.+) \|$", PAGES["settings.md"], flags=re.MULTILINE))
    assert {setting.name for setting in settings_of(TrainConfig)} <= rows.keys()
    assert all(rows.values())


def test_api_page_lists_every_public_name_once() -> None:
    headings = re.findall(r"^### (\w+)$", PAGES["api.md"], flags=re.MULTILINE)
    assert sorted(headings) == sorted(set(torl.__all__) - {"__version__"})
    assert " at 0x" not in PAGES["api.md"]


def test_errors_page_lists_every_error_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `.*` \| (.{20,}) \|$", PAGES["errors.md"], flags=re.MULTILINE))
    assert rows.keys() == {name for name, value in vars(torl.base.errors).items() if inspect.isclass(value)}


def test_metrics_page_lists_every_metric_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGES["metrics.md"], flags=re.MULTILINE))
    declared = {value for name, value in vars(metric_names).items() if name.isupper() and isinstance(value, str)}
    patterns = {"tool/<tool>/<count>", "evaluation/<set>/<name>", "by/<value>/<name>", "selection/masked/<reason>"}
    assert declared == metric_names.METRICS.keys()
    assert declared | patterns <= rows.keys()
    assert [name for name, meaning in rows.items() if len(meaning) < 10] == []


def test_metrics_page_has_every_number_of_the_learner() -> None:
    everything = AlgorithmConfig.model_validate({"importance_correction": "tis", "kl": {"coefficient": 0.1}})
    arrays = (np.array([3, 5], np.int32), np.array([False, True]), np.zeros(2, np.float32), np.ones(2, np.float32))
    sample = TrainingSample(*arrays, ref_logprobs=np.zeros(2, np.float32))
    batch = replace(pack_batch([sample], max_row_tokens=2, ranks=1), imitated_tokens=1)
    row, one = RowTensors(batch.rows[0][0], torch.device("cpu")), torch.tensor([-0.5])
    imitated = ImitatedTensors(*(torch.zeros(1),) * 3)
    policy = with_imitation(policy_objective(one, one, row, everything), one, imitated)
    critic = value_objective(one, row, None)
    # The rest of an optimizer step and of a training step, which need ranks.
    of_step = {"loss", "gradient_norm", "changed_weights", "learning_rate", "update_seconds"}
    names = {"updates", "seconds", *of_step, *policy.sums, *policy.maxima, *policy.terms, *_report({}, batch, 1)}
    own = {f"learner/critic_{name}" for name in (*critic.sums, *critic.maxima, "explained_variance")}
    own -= {metric_names.critic_metric(f"learner/{name}") for name in names}
    rows = re.findall(r"^\| `(learner/\w+)`", PAGES["metrics.md"], flags=re.MULTILINE)
    assert sorted(own | {f"learner/{name}" for name in names}) == sorted(
        set(rows) - {metric_names.LOGPROB_GAP_PROBE}  # not the learner's
    )


def test_metrics_page_names_the_counts_of_tools_and_environments() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGES["metrics.md"], flags=re.MULTILINE))
    tool = BoundedTool("python", PythonTool(), ToolLimits())
    for name in (*_COUNTS, *tool.metrics(), "connected"):
        assert f'"{name}"' in rows["tool/<tool>/<count>"]
    environment = BoundedEnvironment(ScriptedEnvironment())
    for name in environment.metrics():
        assert f'"{name}"' in rows["environment/count/<count>"]
