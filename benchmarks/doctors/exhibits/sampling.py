"""Bugs of the requests to the engine and of the turns that come back."""

from dataclasses import replace
from functools import cache
from typing import Any

from tokenizers import Tokenizer

from benchmarks.doctors.exhibits.catalog import END_TOKEN, Exhibit, add, exhibit
from torl.base.paths import resolve_path
from torl.base.types import SampledTurn, TurnRequest

_SAMPLE = "torl.components.engine.vllm.engine:VllmEngine.sample"
_PARAMS = "torl.components.engine.vllm.engine:sampling_params"


@cache
def tokenizer() -> Any:
    """Return the demo's tokenizer."""
    return Tokenizer.from_file(str(resolve_path("torl:demo/base_model/tokenizer.json")))


@exhibit(
    _SAMPLE,
    thread="huggingface/trl#5224",
    says="Completions were decoded to text and encoded again, which gave other token ids than the sampled ones.",
    truth=("wrong-engine", "numeric-gap", "verify:logprobs"),
)
def encoded_again(original: Any) -> Any:
    """Decode the sampled tokens and encode their text."""

    async def sample(self: Any, request: TurnRequest, on_block: Any = None) -> SampledTurn:
        turn: SampledTurn = await original(self, request, on_block)
        ids = list(turn.token_ids)
        end = ids[-1:] if ids[-1:] == [END_TOKEN] else []
        text = tokenizer().decode(ids[: len(ids) - len(end)])
        again = [*tokenizer().encode(text, add_special_tokens=False).ids, *end]
        logprobs = (*turn.logprobs, *(0.0,) * len(again))[: len(again)]
        return replace(turn, token_ids=tuple(again), logprobs=logprobs)

    return sample


@exhibit(
    _SAMPLE,
    thread="huggingface/trl#3853",
    says="vLLM prepended a second beginning-of-sequence token to the prompt, which the trainer did not have.",
    truth=("wrong-engine", "numeric-gap", "verify:logprobs"),
)
def doubled_first_token(original: Any) -> Any:
    """Send the engine a prompt with another special token in front."""

    async def sample(self: Any, request: TurnRequest, on_block: Any = None) -> SampledTurn:
        turn: SampledTurn = await original(self, replace(request, prefix=[END_TOKEN, *request.prefix]), on_block)
        return turn

    return sample


@exhibit(
    _PARAMS,
    thread="NVIDIA-NeMo/RL#3497",
    says="vLLM took unset sampling parameters from the model's generation_config.json, unlike the trainer.",
    truth=("wrong-engine", "numeric-gap", "verify:logprobs"),
)
def sampling_defaults(original: Any) -> Any:
    """Sample with the values of a published generation_config.json."""

    def params(request: TurnRequest, stop_token_ids: Any) -> Any:
        made = original(request, stop_token_ids)
        made.top_k, made.repetition_penalty = 20, 1.1
        return made

    return params


@exhibit(
    _PARAMS,
    thread="google/tunix!2314",
    says="The engine was not given the end token of a turn and sampled up to the limit, with invented turns.",
    truth=("no-end-token", "truncation"),
)
def unknown_end_token(original: Any) -> Any:
    """Sample past the end token."""

    def params(request: TurnRequest, stop_token_ids: Any) -> Any:
        made = original(request, [])
        made.ignore_eos = True
        return made

    return params


@exhibit(
    "torl.rollout.transcript:derive_seed",
    thread="verl-project/verl!6857",
    says="Responses of a group had colliding sampling seeds, so that they were identical.",
    truth=("no-signal", "unlearned-format"),
)
def equal_seeds(original: Any) -> Any:
    """Derive the seed of a turn without the number of the sample."""

    def seed(run: int, batch: int | str, problem: str, sample: int, turn: int) -> int:
        derived: int = original(run, batch, problem, turn)
        return derived

    return seed


add(
    Exhibit(
        "short-limit",
        "greyhaven-ai/autocontext!1067",
        "A default limit cut every completion before its answer: no reward differed, and nothing was learned.",
        ("truncation", "no-end-token", "unlearned-format", "no-signal"),
        "controller",
        {},
        {"rollout.max_response_tokens": 24},
    )
)
