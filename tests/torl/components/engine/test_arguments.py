"""Arguments of vLLM about a model's weights and its head."""

import json
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs

from torl._core import Vocabulary
from torl.base.errors import ConfigError
from torl.components.engine import EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices, engine_arguments
from torl.components.engine.vllm.options import VllmOptions


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(
    ("config", "loads", "expected"),
    [
        ({"model_type": "qwen2"}, True, None),
        ({"model_type": "qwen2"}, False, "dummy"),
        # A buffer is not sent: it has to be read.
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
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", load_weights=loads)
    arguments = engine_arguments(setup, VllmOptions(), EngineDevices(on_cpu, (0,)), ["load_format"])
    assert arguments.get("load_format") == expected


def test_custom_load_format_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", load_weights=False)
    options = VllmOptions(arguments={"load_format": "safetensors"})
    arguments = engine_arguments(setup, options, EngineDevices(True, (0,)), ["load_format"])
    assert arguments["load_format"] == "safetensors"


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_draft_model_is_read_and_kept_since_it_is_not_sent(on_cpu: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", load_weights=False)
    known = [field.name for field in fields(AsyncEngineArgs)]
    options = VllmOptions(arguments={"speculative_config": {"method": "eagle", "model": "draft"}})
    arguments = engine_arguments(setup, options, EngineDevices(on_cpu, (0,)), known)
    assert "load_format" not in arguments
    assert arguments.get("sleep_preserve_parameter_names") == (None if on_cpu else ["draft.*"])
    assert arguments.keys() <= set(known)


@pytest.mark.parametrize(
    ("config", "eager", "on_cpu", "is_refused"),
    [
        ({"num_experts": 8}, False, False, True),
        ({"n_routed_experts": 8}, False, False, True),
        ({"num_experts": 8}, True, False, False),
        ({"num_experts": 8}, False, True, False),  # a CPU captures no graphs
        ({}, False, False, False),
    ],
)
def test_experts_in_fp8_per_channel_need_an_eager_engine(
    config: dict[str, Any], eager: bool, on_cpu: bool, is_refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log")
    options = VllmOptions(arguments={"quantization": "fp8_per_channel", "enforce_eager": eager})
    with pytest.raises(ConfigError, match=r"needs engine\.arguments\.enforce_eager") if is_refused else nullcontext():
        engine_arguments(setup, options, EngineDevices(on_cpu, (0,)), ["quantization", "enforce_eager"])


def test_a_head_in_float32_is_vllms_own(tmp_path: Path) -> None:
    overrides: dict[str, Any] = {"hf_overrides": {"rope_theta": 5000.0}}
    known = list(overrides)

    def arguments_of(head_dtype: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, (0,), tmp_path / "engine.log", head_dtype=head_dtype)
        return engine_arguments(setup, VllmOptions(arguments=arguments), EngineDevices(True, (0,)), known)

    assert arguments_of("float32", {})["hf_overrides"] == {"head_dtype": "float32"}
    assert "hf_overrides" not in arguments_of(None, {})
    assert arguments_of(None, overrides)["hf_overrides"] == overrides["hf_overrides"]
    with pytest.raises(ConfigError, match=r"engine\.arguments\.hf_overrides: torl sets it itself"):
        arguments_of("float32", overrides)
