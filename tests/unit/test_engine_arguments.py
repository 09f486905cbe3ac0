"""What vLLM is told of a model's weights."""

import json
from pathlib import Path
from typing import Any

import pytest

from torl._core import Vocabulary
from torl.engine import EngineSetup
from torl.engine.vllm.arguments import engine_arguments
from torl.engine.vllm.options import VllmOptions


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(
    ("config", "loads", "expected"),
    [
        ({"model_type": "qwen2"}, True, None),
        ({"model_type": "qwen2"}, False, "dummy"),
        # What is not a parameter is not sent: it has to be read.
        ({"model_type": "gemma3_text"}, False, None),
        ({"model_type": "qwen2", "quantization_config": {"quant_method": "gptq"}}, False, None),
        (None, False, None),
    ],
)
def test_an_engine_that_is_sent_everything_reads_no_weights(
    config: dict[str, Any] | None, loads: bool, expected: str | None, on_cpu: bool, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", loads_weights=loads)
    told = engine_arguments(setup, VllmOptions(), (0,), on_cpu=on_cpu, known=["load_format"])
    assert told.get("load_format") == expected


def test_a_load_format_of_ones_own_stays(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", loads_weights=False)
    options = VllmOptions(arguments={"load_format": "safetensors"})
    told = engine_arguments(setup, options, (0,), on_cpu=True, known=["load_format"])
    assert told["load_format"] == "safetensors"
