"""DeepSpeed engines: their configuration, their creation, their learning rate."""

import logging
import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torl.base.errors import DataError, LearnerError
from torl.learner.model.attention import attention_implementation
from torl.learner.model.loading import build_empty_model, distribute_weights, open_weights, use_kernels
from torl.learner.model.policy import Policy
from torl.learner.model.sequence_parallel import SequenceParallel
from torl.run.config import LearnerConfig, ModelConfig
from torl.run.placement.states import BUCKET_ELEMENTS


def deepspeed_configuration(config: LearnerConfig, *, persistence_threshold: int = 0) -> dict[str, Any]:
    """Return DeepSpeed's configuration.

    The learner scales its loss and marks the last backward pass before a step, so that DeepSpeed sees micro-batches of
    one row and one accumulation step. Gradients are summed in float32, regardless of the precision of the weights:
    over ranks always, over rows except at stage 0, which DeepSpeed does not support.

    Args:
        config: Settings of the learner.
        persistence_threshold: Number of elements up to which ZeRO-3 does not shard a parameter between rows.
    """
    zero: dict[str, Any] = {
        "stage": config.zero_stage,
        # Overlapping communication with computation requires streams. On the CPU it only adds copies.
        "overlap_comm": torch.cuda.is_available(),
        "contiguous_gradients": True,
        "reduce_bucket_size": BUCKET_ELEMENTS,
    }
    if config.zero_stage == 3:
        zero["stage3_param_persistence_threshold"] = persistence_threshold
    if config.offloads_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if config.offloads_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.gradient_clip,
        "communication_data_type": "fp32",
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,  # which is compiled on first use, unlike torch's AdamW
        "steps_per_print": None,
    }
    if config.dtype == "bfloat16":
        settings["bf16"] = {"enabled": True, "check_grad_overflow": True}
        if config.zero_stage > 0:
            settings["data_types"] = {"grad_accum_dtype": "fp32"}
    return settings


def load_causal_lm(model: ModelConfig, config: LearnerConfig, device: torch.device, *, needs_head: bool = True) -> Any:
    """Load a Hugging Face model on a device in the learner's precision, without dropout. Every rank must call this.

    Rank 0 reads the model and distributes it; under ZeRO-3 each rank keeps its shards. Dropout would make the
    importance ratio random, so every dropout setting is set to 0.

    Args:
        model: Settings of the model.
        config: Settings of the learner.
        device: Device of this rank.
        needs_head: Whether the files must contain the language head.

    Raises:
        DataError: The directory does not exist, its files lack weights, or transformers cannot load the model.
        LearnerError: Torch cannot allocate the weights or send them to the other ranks.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    if not Path(model.path).is_dir():
        raise DataError(f"model.path = {model.path}: no such directory")
    try:
        settings = AutoConfig.from_pretrained(model.path, local_files_only=True, trust_remote_code=False)
        for name, value in settings.to_dict().items():
            if ("dropout" in name or name.endswith("_pdrop")) and isinstance(value, float):
                setattr(settings, name, 0.0)
        dtype = getattr(torch, config.dtype)
        attention = attention_implementation(model.attention, settings)
        shards = deepspeed_configuration(config) if config.zero_stage == 3 else None
        causal_lm = build_empty_model(settings, dtype, attention, shards, device)
        load_whole = partial(
            AutoModelForCausalLM.from_pretrained,
            model.path,
            config=settings,
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
        )
        optional = frozenset() if needs_head else _head_names(causal_lm)
        open_reader = partial(open_weights, Path(model.path), load_whole=load_whole, optional=optional)
        distribute_weights(causal_lm, open_reader)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise DataError(f"model.path = {model.path}: transformers cannot load it: {error}") from error
    except KeyError as error:  # of a model with a class for each implementation
        raise DataError(
            f"model.path = {model.path}: transformers cannot create a {settings.model_type} model with attention "
            f"{error}; model.attention = 'eager' may be supported"
        ) from error
    except RuntimeError as error:
        raise LearnerError(f"model.path = {model.path}: torch cannot load it on {device}: {error}") from error
    print(f"{model.path}: {use_kernels(causal_lm, model)}", flush=True)  # into the rank's log
    if config.gradient_checkpointing:
        causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return causal_lm.train()


def _head_names(causal_lm: Any) -> frozenset[str]:
    head = {*causal_lm.get_output_embeddings().parameters()} - {*causal_lm.get_input_embeddings().parameters()}
    return frozenset(name for name, parameter in causal_lm.named_parameters() if parameter in head)


def make_policy(causal_lm: Any, model: ModelConfig, config: LearnerConfig, parallel: SequenceParallel | None) -> Policy:
    """Wrap a Hugging Face model as a policy, with logits in `model.head_dtype`."""
    dtype = None if model.head_dtype is None else getattr(torch, model.head_dtype)
    return Policy(causal_lm, max_stored_logits=config.max_stored_logits, logits_dtype=dtype, parallel=parallel)


def start_engine(module: nn.Module, config: LearnerConfig) -> Any:
    """Create a DeepSpeed engine that trains a module with AdamW. The process group must exist."""
    import deepspeed

    _quieten_deepspeed()
    engine, _, _, _ = deepspeed.initialize(
        model=module,
        optimizer=_adamw(module, config),
        config=deepspeed_configuration(config, persistence_threshold=_max_vector_elements(module)),
        dist_init_required=False,
    )
    if hasattr(engine.optimizer, "fp32_groups"):
        _undo_first_step(engine.optimizer)
    return engine


def _undo_first_step(optimizer: Any) -> None:
    """Undo the step with zero gradients that DeepSpeed takes in bfloat16 at stage 0, to allocate AdamW's states.

    It counts in AdamW's bias correction, so that the first update would be 0.74 times as large, and decays the weights.
    """
    for state in optimizer.optimizer.state.values():
        state["step"].zero_()
    for weights, masters in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
        for weight, master in zip(weights, masters, strict=True):
            master.data.copy_(weight.data)


def _max_vector_elements(module: nn.Module) -> int:
    """Return the size of the largest norm or bias. Gathering such a vector takes as long as gathering a matrix."""
    shapes = (getattr(parameter, "ds_shape", parameter.shape) for parameter in module.parameters())
    return max((shape.numel() for shape in shapes if len(shape) == 1), default=0)


def start_reference(
    model: ModelConfig, config: LearnerConfig, device: torch.device, parallel: SequenceParallel | None
) -> Any:
    """Load the reference model: a policy without training, complete on every rank, or sharded under ZeRO-3.

    Raises:
        DataError: The model cannot be read.
    """
    # Its shards stay in CPU memory if the engine shares the devices.
    in_cpu_memory = config.zero_stage == 3 and (config.offloads_parameters or config.offloads_while_sampling)
    offload = "parameters" if in_cpu_memory else "none"
    config = config.model_copy(update={"gradient_checkpointing": False, "offload": offload})
    causal_lm = load_causal_lm(model, config, device)
    policy = make_policy(causal_lm, model, config, parallel)
    policy.requires_grad_(False)
    if config.zero_stage < 3:
        return policy
    import deepspeed

    _quieten_deepspeed()
    settings = deepspeed_configuration(config, persistence_threshold=_max_vector_elements(policy))
    engine, _, _, _ = deepspeed.initialize(model=policy, config=settings, dist_init_required=False)
    return engine


def _quieten_deepspeed() -> None:
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed 0.19 calls collectives by the names that torch 2.13 has deprecated.
    warnings.filterwarnings("ignore", category=FutureWarning, message=r"`torch\.distributed\..* is deprecated")


def _adamw(module: nn.Module, config: LearnerConfig) -> torch.optim.Optimizer:
    """Return torch's AdamW, fused on a GPU. DeepSpeed's optimizer would be compiled on the user's machine."""
    return torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=torch.cuda.is_available(),
    )


def learning_rate_at(step: int, total_steps: int, config: LearnerConfig) -> float:
    """Return the learning rate of an optimizer step.

    Warmup step i of w uses peak * (i + 1) / (w + 1), so that no step has a learning rate of 0. Afterwards the rate is
    constant, or decays linearly or along a cosine to 0, which is reached just after the last step.

    Args:
        step: Index of the step, from 0.
        total_steps: Number of optimizer steps of the run.
        config: Settings of the learner.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    if config.lr_schedule == "constant":
        return config.learning_rate
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    factor = 1 - progress if config.lr_schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.learning_rate * factor
