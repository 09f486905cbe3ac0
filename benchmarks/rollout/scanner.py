"""Speed of finding the end of a turn: torl's scanner against vLLM's search for a stop string.

    python -m benchmarks.rollout.scanner [--model DIRECTORY] [--transcripts FILE]

vLLM decodes every token incrementally (the `tokenizers` library's stream) and searches the text for the marker. Both
sides get the same tokens, one for each stream and step, as an engine samples them, in the same two loops, and have to
find the same marker at the same token. Times are the best of several. The last line is JSON: `speedup_N` for N streams;
`whole_turn_tokens_per_s` is for a whole turn in one call, where no call of Python is counted for each token.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from torl._core import Scanner, StopCondition, Vocabulary
from torl.base.paths import resolve_path
from torl.components.text.tokenizer import load_tokenizer
from torl.components.text.vocabulary import build_vocabulary

MARKER = "```output"
STREAMS = (1, 64, 1024)
TOKENS = 400
TEXT = (
    "To find the sum we add the first and the second term. Then\n```python\ntotal = 0\nfor n in range(1, 101):\n"
    "    total += n * n  # squares\nprint(total)\n```\nThis should print the answer, which we read off. So "
)


def request(number: int) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=str(number),
        prompt_token_ids=[1, 2, 3],
        mm_features=None,
        sampling_params=SamplingParams(stop=[MARKER], max_tokens=2 * TOKENS),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def best(work: Callable[[], tuple[float, list[int]]], rounds: int) -> tuple[float, list[int]]:
    found = [work() for _ in range(rounds)]
    return min(seconds for seconds, _ in found), found[0][1]


def with_torl(vocabulary: Vocabulary, streams: list[list[int]]) -> tuple[float, list[int]]:
    """Seconds, and at which token each stream ended."""
    scanners = [Scanner(vocabulary, StopCondition.marker(MARKER.encode())) for _ in streams]
    steps = [list(step) for step in zip(*streams, strict=True)]
    ends = [0] * len(streams)
    started = time.perf_counter()
    for index, step in enumerate(steps):
        for stream, (scanner, token) in enumerate(zip(scanners, step, strict=True)):
            scan = scanner.feed_token(token)
            if scan is not None and scan.overshoot is not None:
                ends[stream] = index
    return time.perf_counter() - started, ends


def with_vllm(tokenizer: object, streams: list[list[int]]) -> tuple[float, list[int]]:
    detokenizers = [IncrementalDetokenizer.from_new_request(tokenizer, request(n)) for n in range(len(streams))]  # type: ignore[arg-type]
    steps = [list(step) for step in zip(*streams, strict=True)]
    ends = [0] * len(streams)
    started = time.perf_counter()
    for index, step in enumerate(steps):
        for stream, (detokenizer, token) in enumerate(zip(detokenizers, step, strict=True)):
            if detokenizer.update([token], False) is not None:
                ends[stream] = index
    return time.perf_counter() - started, ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="torl:demo/base_model")
    parser.add_argument("--transcripts", type=Path, help="JSON lines with a `transcript`: text like a model's")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tokenizer = load_tokenizer(resolve_path(options.model))
    vocabulary = build_vocabulary(tokenizer)
    text = TEXT
    if options.transcripts:
        lines = options.transcripts.read_text(encoding="utf-8").splitlines()
        text = "\n".join(json.loads(line)["transcript"].replace(MARKER, "") for line in lines[:200])
    body = tokenizer.encode(text * (1 + 40 * TOKENS // len(text)), add_special_tokens=False)
    ending = tokenizer.encode(f"\n{MARKER}", add_special_tokens=False)
    result: dict[str, float] = {}
    for count in STREAMS:
        starts = [37 * number % (len(body) - TOKENS) for number in range(count)]
        streams = [body[start : start + TOKENS - len(ending)] + ending for start in starts]
        ours, our_ends = best(lambda: with_torl(vocabulary, streams), options.rounds)  # noqa: B023
        theirs, their_ends = best(lambda: with_vllm(tokenizer, streams), options.rounds)  # noqa: B023
        if our_ends != their_ends or set(our_ends) != {TOKENS - 1}:
            raise RuntimeError("the two sides found different ends")
        tokens = count * TOKENS
        print(f"{count:5} streams: torl {tokens / ours:14,.0f} tokens/s, vLLM {tokens / theirs:12,.0f} tokens/s")
        result |= {
            f"tokens_per_s_{count}": round(tokens / ours),
            f"vllm_tokens_per_s_{count}": round(tokens / theirs),
            f"speedup_{count}": round(theirs / ours, 1),
        }
    turn = streams[0]
    started = time.perf_counter()
    for _ in range(1000):
        Scanner(vocabulary, StopCondition.marker(MARKER.encode())).feed(turn)
    result["whole_turn_tokens_per_s"] = round(1000 * len(turn) / (time.perf_counter() - started))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
