"""One engine over two worker processes: the code that several GPUs will run."""

from pathlib import Path

import numpy as np
import pytest

from engine_checks import check_that_a_kill_ends_every_request, greedy_turn, transformers_logprobs
from engines import make_engine
from weight_sending import perturbed, sending


@pytest.mark.slow
@pytest.mark.usefixtures("temporary_directory")
async def test_two_workers_take_weights_and_die_together(tiny_model_directory, prompts, tmp_path) -> None:
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", tensor_parallel=2)
    await engine.start()
    try:
        assert len(engine.processes) == 3
        mapped = [Path(f"/proc/{process.pid}/maps").read_text() for process in engine.processes[1:]]
        shared = [[line for line in maps.splitlines() if "cpushm" in line] for maps in mapped]
        # vLLM's kernels for processors without AVX-512 have no such memory.
        assert all(shared) == ("avx512f" in Path("/proc/cpuinfo").read_text())
        assert all(line.endswith("(deleted)") for lines in shared for line in lines)  # it ends with who maps it
        prompt = prompts[0].token_ids * 4
        ids, logprobs, _ = await greedy_turn(engine, prompt)
        assert np.abs(transformers_logprobs(tiny_model_directory, prompt, ids) - logprobs).max() < 1e-5
        changed = perturbed(tiny_model_directory, tmp_path / "changed")
        async with sending(changed, tmp_path, "--receivers", "2") as (rendezvous, process):
            await engine.receive_weights(rendezvous, 1)
            assert await process.wait() == 0
        ids, logprobs, version = await greedy_turn(engine, prompt)
        assert version == 1
        assert np.abs(transformers_logprobs(changed, prompt, ids) - logprobs).max() < 1e-5
        assert np.abs(transformers_logprobs(tiny_model_directory, prompt, ids) - logprobs).max() > 1e-2
    except BaseException:
        await engine.close()
        raise
    await check_that_a_kill_ends_every_request(engine, 2, prompts)
