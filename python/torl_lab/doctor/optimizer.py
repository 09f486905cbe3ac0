"""Checks of the update: clipping, divergence from the reference, gradients, rates without effect."""

from statistics import fmean, median

from torl.run.records import metric_names as names
from torl.run.records.thresholds import Limit
from torl_lab.doctor.groups import is_uniform
from torl_lab.doctor.history import KEPT, MIN_RECENT, RECENT, MissingInputError, StepHistory
from torl_lab.doctor.run_check import Measurement, RunCheck, leaps

_CLIPPED = Limit(0.4, "above 0.4 over 5 steps, or 0.3 over 20", "rldoctor, rlprobe")
_LONG_CLIPPED = 0.3
_ASYMMETRY = 3.0
_KL = Limit(0.5, "above 0.5 nats and 8 times the first steps', or above 2", "rlprobe, rldoctor")
_KL_GROWTH, _KL_SEVERE = 8.0, 2.0
_SPIKE = Limit(
    10.0, "10 times the median of the 20 steps before, at 8 standard deviations, or not a number", "rlprobe, rldoctor"
)
_ZERO = Limit(0.4, "above 0.4 of the latest 10 steps, although groups have different rewards", "rldoctor")
_UNCHANGED = Limit(1e-4, "below 0.0001 in each of the latest 3 steps after the warm-up", "huggingface/blog!3386; torl")


@RunCheck(
    "Clipping removes much of the gradient: the policy moves too far within a step.",
    metric=names.CLIP_FRACTION,
    limits=(_CLIPPED,),
    fix="a lower learner.learning_rate, fewer algorithm.epochs or algorithm.mini_batches, "
    "algorithm.policy_loss.clip_high",
)
def clip_saturation(history: StepHistory) -> Measurement | None:
    """Compare the clip fraction with its limits."""
    now, values = history.now(names.CLIP_FRACTION), history.series(names.CLIP_FRACTION, KEPT)
    long = fmean(values) if len(values) >= KEPT else 0.0
    if now <= _CLIPPED.value and long <= _LONG_CLIPPED:
        return None
    text = f"{now:.0%} of the tokens are clipped" + (f", {long:.0%} over {KEPT} steps" if long > _LONG_CLIPPED else "")
    sides = [step.tokens.clipped for step in history.recent if step.tokens is not None and step.tokens.clipped]
    if sides:
        up, down = (fmean(side[index] for side in sides) for index in (0, 1))
        if max(up, down) > _ASYMMETRY * min(up, down):
            text += (
                f", mostly those with a {'positive' if up > down else 'negative'} advantage ({up:.2f} and {down:.2f})"
            )
    return Measurement(now, text, history.steps[-1].members)


@RunCheck(
    "The policy moved far away from its reference model.",
    metric=names.REFERENCE_KL,
    limits=(_KL,),
    fix="algorithm.kl.coefficient, a lower learner.learning_rate, an earlier checkpoint",
)
def kl_blow_up(history: StepHistory) -> Measurement | None:
    """Compare the KL divergence from the reference model with that of the first steps."""
    now, members = history.now(names.REFERENCE_KL), history.steps[-1].members
    if now > _KL_SEVERE:
        return Measurement(now, f"the KL divergence is {now:.2f} nats per token", members)
    before = history.before(names.REFERENCE_KL)
    if now <= max(_KL.value, _KL_GROWTH * before):
        return None
    return Measurement(now, f"the KL divergence rose from {before:.3f} to {now:.2f} nats per token", members)


@RunCheck(
    "The gradient norm leaps, or is not a number.",
    metric=names.GRADIENT_NORM,
    limits=(_SPIKE,),
    fix="learner.gradient_clip, a lower learner.learning_rate; look at the batch of the step",
)
def gradient_spikes(history: StepHistory) -> Measurement | None:
    """Find values in the latest steps that are not finite, or far above those before."""
    known = [step for step in history.steps if names.GRADIENT_NORM in step.metrics]
    if not known:
        raise MissingInputError(f"no step has {names.GRADIENT_NORM}")
    for step in known[-2 * RECENT :]:
        if step.metrics[names.GRADIENT_NORM] is None:
            text = f"the gradient norm of step {step.number} is not a number"
            return Measurement(float("nan"), text, step.members)
    values = [step.metrics[names.GRADIENT_NORM] for step in known]
    for index in range(len(values) - 1, max(KEPT, len(values) - 2 * RECENT) - 1, -1):
        value, before, step = values[index], values[index - KEPT : index], known[index]
        if median(before) > 0 and leaps(value, before, _SPIKE.value):
            text = f"the gradient norm of step {step.number} is {value:.3g}, {_SPIKE.value:g} times those before"
            ranked = sorted(step.members, key=lambda member: -abs(member.advantage or 0.0))
            return Measurement(value, text, ranked)
    return None


@RunCheck(
    "Steps have no gradient, although rewards differ within groups.",
    metric=f"fraction of steps with a zero {names.GRADIENT_NORM} or without an update",
    limits=(_ZERO,),
    fix="selection (filters and masks that drop all groups), algorithm.policy_loss, model.lora.target_modules",
    fires="above",
)
def no_gradient(history: StepHistory) -> Measurement:
    """Find steps without a gradient that have groups with different rewards."""
    first = history.config.critic_only_steps
    steps = [step for step in history.steps[-2 * RECENT :] if step.members and step.number >= first]
    if len(steps) < MIN_RECENT:
        raise MissingInputError(f"{len(steps)} of {MIN_RECENT} steps with trajectories in which the policy learns")
    mixed = [step for step in steps if any(not is_uniform(group) for group in step.groups)]
    zero = [step for step in mixed if not step.metrics.get(names.GRADIENT_NORM, 0.0)]
    fraction = len(zero) / len(steps)
    text = f"{len(zero)} of the latest {len(steps)} steps have groups with different rewards and no gradient"
    members = (each for step in zero[-1:] for group in step.groups if not is_uniform(group) for each in group)
    return Measurement(fraction, text, members)


@RunCheck(
    "The updates are lost in rounding: the learning rate is too small to change the weights.",
    metric=names.CHANGED_WEIGHTS,
    limits=(_UNCHANGED,),
    fix="a higher learner.learning_rate, or learner.dtype = 'float32'",
)
def rate_without_effect(history: StepHistory) -> Measurement | None:
    """Find steps with a gradient after which the weights have the same bits."""
    config = history.config.learner
    steps = [
        step
        for step in history.steps
        if step.metrics.get(names.CHANGED_WEIGHTS) is not None and step.number >= config.warmup_steps
    ]
    if len(steps) < MIN_RECENT:
        raise MissingInputError(f"{len(steps)} of {MIN_RECENT} steps with {names.CHANGED_WEIGHTS} after the warm-up")
    latest = [step for step in steps[-MIN_RECENT:] if step.metrics.get(names.GRADIENT_NORM)]
    if len(latest) < MIN_RECENT or max(step.metrics[names.CHANGED_WEIGHTS] for step in latest) >= _UNCHANGED.value:
        return None
    text = (
        f"less than {_UNCHANGED.value:.2%} of the weights changed in each of the latest {MIN_RECENT} steps "
        f"({config.dtype}, learning rate {config.learning_rate:g})"
    )
    return Measurement(latest[-1].metrics[names.CHANGED_WEIGHTS], text, latest[-1].members)
