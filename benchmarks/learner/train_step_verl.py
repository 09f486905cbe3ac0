"""verl's side of `train_step.py`: `train_batch` of its FSDP engine with its PPO loss, padding removed, as its actor."""

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import set_platform

from benchmarks.learner.train_step_problem import CLIP, ONE_RANK, SETTINGS, read_samples, serve


class Cpu(PlatformCUDA):
    """Functions that verl requires of a device, for the CPU: it ships platforms for accelerators alone."""

    device_name = "cpu"
    device_module = torch.cpu

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def empty_cache(self) -> None: ...


set_platform(Cpu())  # before verl's engine is imported, which asks for it then
sys.modules["trl"] = None  # type: ignore[assignment]  # verl patches a class that this version of TRL no longer has

from verl.trainer.config import CheckpointConfig  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402
from verl.workers.config import (  # noqa: E402
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
)
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.utils.losses import ppo_loss  # noqa: E402


def jagged(parts: list[torch.Tensor]) -> torch.Tensor:
    """Rows of different lengths in one nested tensor."""
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-row-tokens", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True, help="not used: rows are filled by tokens")
    arguments = parser.parse_args()
    os.environ |= ONE_RANK
    torch.set_num_threads(arguments.threads)
    samples = read_samples(arguments.directory / "samples.json")
    with tempfile.TemporaryDirectory() as meeting:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=0, world_size=1)
        engine = FSDPEngineWithLMHead(
            HFModelConfig(path=str(arguments.directory / "model"), override_config={"attn_implementation": "sdpa"}),
            FSDPEngineConfig(
                strategy="fsdp2",
                mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
                use_torch_compile=False,
                max_token_len_per_gpu=arguments.max_row_tokens,
            ),
            FSDPOptimizerConfig(
                lr=SETTINGS["learning_rate"],
                betas=SETTINGS["betas"],
                weight_decay=SETTINGS["weight_decay"],
                clip_grad=SETTINGS["gradient_clip"],
                total_training_steps=1000,
            ),
            CheckpointConfig(),
        )
        engine.initialize()
        actor = FSDPActorConfig(
            strategy="fsdp2",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio=CLIP,
            clip_ratio_c=1e9,  # no second bound on ratios, which the others do not have
            entropy_coeff=0.0,
        )

        def batch() -> object:
            responses = [sample.token_ids[sample.prompt_tokens :] for sample in samples]
            masks = [torch.from_numpy(sample.sampled[sample.prompt_tokens :]) for sample in samples]
            return tu.get_tensordict(
                {
                    "input_ids": jagged([torch.from_numpy(sample.token_ids).long() for sample in samples]),
                    "position_ids": jagged([torch.arange(len(sample.token_ids)) for sample in samples]),
                    "prompts": jagged([torch.from_numpy(s.token_ids[: s.prompt_tokens]).long() for s in samples]),
                    "responses": jagged([torch.from_numpy(response).long() for response in responses]),
                    "response_mask": jagged(masks),
                    "loss_mask": jagged(masks),
                    "old_log_probs": jagged([torch.from_numpy(s.old_logprobs[s.prompt_tokens :]) for s in samples]),
                    "advantages": jagged(
                        [mask * sample.advantage for mask, sample in zip(masks, samples, strict=True)]
                    ),
                },
                non_tensor_dict={
                    "use_remove_padding": True,
                    "use_dynamic_bsz": True,
                    "max_token_len_per_gpu": arguments.max_row_tokens,
                    "temperature": 1.0,
                    "calculate_entropy": True,
                    "global_batch_size": len(samples),
                },
            )

        def step() -> dict[str, float]:
            with engine.train_mode():
                output = engine.train_batch(batch(), loss_function=partial(ppo_loss, actor))
            return {"loss": float(sum(output["loss"])), "gradient_norm": float(output["metrics"]["grad_norm"])}

        serve(step)


if __name__ == "__main__":
    main()
