"""Checks of the engine: old weights, other weights, numeric differences, staleness."""

from statistics import fmean, median

from torl.run.display.series import rank_correlation
from torl.run.records import metric_names as names
from torl.run.records.thresholds import Limit
from torl.training.health import coarser_dtype, inexact_logprobs, rounding_limit
from torl_lab.doctor.history import RECENT, MissingInputError, StepHistory
from torl_lab.doctor.run_check import Measurement, RunCheck
from torl_lab.doctor.token_facts import DISAGREEMENT, ENGINE_SURE

_CONFIDENT = Limit(
    3,
    f"3 tokens in the latest 5 steps with an engine's probability of {ENGINE_SURE:g} that the learner puts "
    f"{DISAGREEMENT:g} nats lower, or a gap of 3 times the first and above rounding",
    "martingale",
)
_GROWN = 3.0  # times the first gap
_TREND = 0.6  # rank correlation of the gap with the step
_EXACT = Limit(2.5e-3, "a mean gap above 0.0025 nats if both compute in float32", "torl: rounding of TF32")
_ANY = Limit(0, "any", "trl!4975, RAGEN#59")
_FACTOR = Limit(1.1, "above 1.1", "NeMo-RL's gate")
_KL = Limit(0.02, "above 0.02 nats per token", "Tinker's range of bugs")
_AGE = Limit(8, "above 8 updates", "prime-rl")
_EFFECTIVE = Limit(0.3, "below 0.3", "martingale, verl")


class _Gaps:
    """The gaps of the steps with tokens that the trained policy itself sampled."""

    def __init__(self, history: StepHistory) -> None:
        """Collect the gaps.

        Raises:
            MissingInputError: The log-probabilities differ by configuration, or no tokens are recorded.
        """
        if reason := inexact_logprobs(history.config):
            raise MissingInputError(reason)
        self.facts = [step.tokens for step in history.steps if step.tokens is not None and step.tokens.compared]
        if not self.facts:
            raise MissingInputError("no recorded tokens of the trained policy itself (run.token_groups)")
        self.now = self.facts[-RECENT:]
        self.first, self.gap = self.facts[0].gap, fmean(each.gap for each in self.now)
        self.confident = sum(each.confident for each in self.now)
        self.rounding = rounding_limit(history.config)
        # By more than rounding makes of this model.
        self.differs = self.confident >= _CONFIDENT.value or self.gap > max(self.rounding, _GROWN * self.first)

    @property
    def grows(self) -> bool:
        """Whether the gap began within rounding and grows with every step, as of an engine that keeps old weights."""
        values = [each.gap for each in self.facts]
        trend = rank_correlation(range(len(values)), values)
        return self.first <= self.rounding and trend is not None and trend >= _TREND and len(values) > 2

    def measurement(self, text: str) -> Measurement:
        """Return a measurement with the worst trajectories of the latest step."""
        found = f"{text}; {self.confident} tokens of which only the engine is sure, mean gap {self.gap:.2g} nats"
        return Measurement(self.gap, found, self.facts[-1].disagreeing)


@RunCheck(
    "The engine samples with old weights: its gap to the learner began at rounding and grows with every update.",
    metric="tokens of the current version of which the engine is sure and the learner is not, and their mean gap",
    limits=(_CONFIDENT,),
    fix="learner.verify_weights = true, learner.weight_transfer; restart the engine from the last checkpoint",
)
def stale_engine(history: StepHistory) -> Measurement | None:
    """Find a growing gap on tokens that are recorded as sampled by the trained policy."""
    gaps = _Gaps(history)
    if not gaps.differs or not gaps.grows:
        return None
    return gaps.measurement(f"the mean gap grew from {gaps.first:.2g} to {gaps.facts[-1].gap:.2g} nats")


@RunCheck(
    "The engine samples with other weights, or another model, than the learner trains, from the start or after a jump.",
    metric="tokens of the current version of which the engine is sure and the learner is not",
    limits=(_CONFIDENT,),
    fix="model.path, model.lora, engine.arguments (quantization, adapters); learner.verify_weights = true",
)
def wrong_engine(history: StepHistory) -> Measurement | None:
    """Find confident disagreement that does not grow with the updates."""
    gaps = _Gaps(history)
    if gaps.confident < _CONFIDENT.value or gaps.grows:
        return None
    return gaps.measurement(f"the mean gap was {gaps.first:.2g} nats at first and is {gaps.facts[-1].gap:.2g}")


@RunCheck(
    "Engine and learner compute the same model, but their log-probabilities differ too much.",
    metric="mean of exp(|learner logprob - engine logprob|), and KL divergence of the current version's tokens",
    limits=(_FACTOR, _KL, _EXACT),
    fix="model.head_dtype = 'float32', engine.dtype and learner.dtype, algorithm.importance_correction (tis)",
)
def numeric_gap(history: StepHistory) -> Measurement | None:
    """Find a gap above rounding without confident disagreement or growth."""
    gaps = _Gaps(history)
    factor, kl = median(each.factor for each in gaps.now), median(each.kl for each in gaps.now)
    is_exact = coarser_dtype(history.config) == "float32" and gaps.gap > _EXACT.value
    is_rounding = factor <= _FACTOR.value and kl <= _KL.value and not is_exact
    if is_rounding or gaps.confident >= _CONFIDENT.value:
        return None
    if gaps.differs and gaps.grows:
        return None  # as stale-engine finds
    depth = median(each.depth for each in gaps.now)
    where = ", and grows with the position in the response, as of a bug" if depth > _TREND / 2 else ""
    text = f"the mean factor is {factor:.3f}, the KL divergence {kl:.2g} nats per token{where}"
    return gaps.measurement(text)


@RunCheck(
    "The batch has tokens that a much older policy sampled.",
    metric=f"{names.STALENESS_MAX}, and effective sample size of the tokens of older versions",
    limits=(_AGE, _EFFECTIVE),
    fix="rollout.max_staleness, fewer rollout.prompts_per_step, algorithm.importance_correction",
)
def too_stale(history: StepHistory) -> Measurement | None:
    """Compare the age of tokens and the effective sample size with their limits."""
    age = history.now(names.STALENESS_MAX)
    lagged = [step.tokens for step in history.recent if step.tokens is not None and step.tokens.lagged]
    if not lagged and not age:
        raise MissingInputError("no token of an older version")
    effective = fmean(each.effective for each in lagged) if lagged else 1.0
    if age <= _AGE.value and effective >= _EFFECTIVE.value:
        return None
    text = f"the oldest tokens are {age:.1f} updates old, the effective sample size is {effective:.2f}"
    return Measurement(age, text, lagged[-1].disagreeing if lagged else ())


@RunCheck(
    "The loss does not cover exactly the sampled tokens: it includes observations, or misses sampled tokens.",
    metric="recorded trajectories with more or fewer tokens in the loss than sampled ones",
    limits=(_ANY,),
    fix="custom components and templates that build the loss mask; torl verify names the tokens",
    fires="above",
)
def loss_mask(history: StepHistory) -> Measurement:
    """Compare the numbers of tokens that the learner recorded with the numbers of sampled tokens."""
    facts = [step.tokens for step in history.steps[-RECENT:] if step.tokens is not None]
    if not facts:
        raise MissingInputError("no recorded tokens (run.token_groups)")
    wrong = [address for each in facts for address in each.mismatched]
    return Measurement(len(wrong), f"{len(wrong)} recorded trajectories of the latest {len(facts)} steps", wrong)
