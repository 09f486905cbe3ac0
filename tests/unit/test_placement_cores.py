"""Whether the cores have instructions for bfloat16, and what a run says of settings that they emulate."""

import pytest
import torch

from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.placement.machine import Machine, combine_machines, emulates_bfloat16, this_machine
from torl.placement.resolve import resolve, slow_precision

WITHOUT = "processor\t: 0\nflags\t\t: fpu sse4_2 fma avx avx2 f16c\n"
CORES = Machine((), 2, 16 << 30, emulates_bfloat16=True)


@pytest.mark.parametrize(
    ("cpu_info", "emulates"),
    [
        pytest.param(WITHOUT, True, id="AVX2"),
        pytest.param("flags : avx2 avx512f\n", True, id="Knights Landing"),
        pytest.param("flags : avx2 avx512f avx512dq avx512bw avx512vl\n", False, id="Skylake"),
        pytest.param("flags : avx2 avx_vnni avx_ne_convert\n", False, id="Arrow Lake"),
        pytest.param("Features : fp asimd bf16 i8mm\n", False, id="Graviton 3"),
        pytest.param("Features : fp asimd\n", True, id="Graviton 2"),
        pytest.param("isa : rv64imafdc\n", False, id="unknown"),
    ],
)
def test_flags_of_the_cores(cpu_info: str, emulates: bool) -> None:
    assert emulates_bfloat16(cpu_info) == emulates


def test_torch_says_the_same_of_this_machine() -> None:
    has_instructions = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert this_machine().emulates_bfloat16 != has_instructions


def test_settings_that_are_emulated_are_named() -> None:
    def warning(machine: Machine, **changes: str) -> str | None:
        overrides = {name.replace("__", "."): value for name, value in changes.items()}
        return slow_precision(resolve(load_config(TrainConfig, find_config("demo"), overrides), machine))

    assert warning(CORES) is None  # all in float32
    assert 'engine.dtype = "float32"' in (warning(CORES, engine__dtype="bfloat16") or "")
    both = warning(CORES, engine__dtype="bfloat16", learner__dtype="bfloat16")
    assert "engine.dtype and learner.dtype" in (both or "")
    assert warning(Machine.with_gpus(1, 80 << 30), engine__dtype="bfloat16") is None


def test_one_node_that_emulates_slows_the_cluster() -> None:
    others = Machine((), 2, 16 << 30)
    assert combine_machines([others, CORES]).emulates_bfloat16
    assert not combine_machines([others, others]).emulates_bfloat16
