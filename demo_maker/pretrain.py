"""Make the demo's base model: tokenizer, pre-training on the synthetic corpus, acceptance, assets.

`python -m demo_maker.pretrain --output DIR` takes about ten minutes on one core. The schedule counts steps, so the
result does not depend on the machine's speed; two runs with the same versions differ by rounding alone.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from demo_maker.documents import Document, documents
from demo_maker.induction import install_induction_heads
from demo_maker.interpreter import Interpreter
from demo_maker.model import DemoModel, ModelShape, save_model
from demo_maker.problems import Program, problem_set
from demo_maker.sampler import Measurement, measure, play
from demo_maker.tokenizer import corpus_tokenizer, end_of_text_id, save_tokenizer

STEPS = 2_000
TOKENS_PER_STEP = 2_560
PEAK_RATE, WARM_UP_STEPS, DECAY_SHARE = 3e-3, 60, 0.6
WEIGHT_DECAY, GRADIENT_CLIP = 0.05, 1.0
# Repeated random tokens keep the heads that copy until the documents need them.
INDUCTION_START, INDUCTION_END, INDUCTION_STEPS = 0.5, 0.08, 336
INDUCTION_LENGTHS = (8, 32)
# What a problem says and what an interpreter answers cannot be foreseen: most of those tokens are left out.
UNPREDICTABLE_TOKEN_RATE = 0.1
STEPS_PER_CHUNK = 32

ACCEPTED_ACCURACY, ACCEPTED_CODE_RATIO, ACCEPTED_PASS_RATIO = (0.08, 0.30), (0.28, 0.47), (0.60, 0.85)


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids, and for each of them whether it is a target."""

    token_ids: list[int]
    targets: list[bool]


def document_row(random: Random, document: Document, tokenizer: Tokenizer) -> Row:
    """A document and its end, with few of the unpredictable tokens as targets."""
    token_ids: list[int] = []
    targets: list[bool] = []
    for segment in document:
        ids = tokenizer.encode(segment.text).ids
        token_ids += ids
        targets += [segment.predictable or random.random() < UNPREDICTABLE_TOKEN_RATE for _ in ids]
    return Row([*token_ids, end_of_text_id(tokenizer)], [*targets, True])


def induction_row(random: Random, vocabulary: int) -> Row:
    """Random tokens written twice; the second half is the target."""
    half = [random.randrange(vocabulary) for _ in range(random.randint(*INDUCTION_LENGTHS))]
    return Row(half * 2, [False] * len(half) + [True] * len(half))


def induction_share(step: int) -> float:
    """The share of rows that are random tokens, at a step."""
    progress = min(1.0, step / INDUCTION_STEPS)
    return INDUCTION_START + (INDUCTION_END - INDUCTION_START) * progress


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, flat, then linear to zero over the last `DECAY_SHARE`."""
    return PEAK_RATE * min(1.0, (step + 1) / WARM_UP_STEPS, (steps - step) / (DECAY_SHARE * steps))


def batches(random: Random, tokenizer: Tokenizer, corpus: Iterator[Document]) -> Iterator[list[Row]]:
    """Endless batches of rows of similar length, at most `TOKENS_PER_STEP` tokens with padding."""
    step = 0
    while True:
        rows, tokens = [], 0
        while tokens < STEPS_PER_CHUNK * TOKENS_PER_STEP:
            if random.random() < induction_share(step):
                rows.append(induction_row(random, tokenizer.get_vocab_size()))
            else:
                rows.append(document_row(random, next(corpus), tokenizer))
            tokens += len(rows[-1].token_ids)
        rows.sort(key=lambda row: len(row.token_ids))
        chunk: list[list[Row]] = [[]]
        for row in rows:
            if len(row.token_ids) * (len(chunk[-1]) + 1) > TOKENS_PER_STEP:
                chunk.append([])
            chunk[-1].append(row)
        random.shuffle(chunk)
        step += len(chunk)
        yield from chunk


def batch_loss(model: DemoModel, rows: list[Row]) -> Tensor:
    """Mean cross-entropy over the target tokens of a batch."""
    length = max(len(row.token_ids) for row in rows)
    token_ids = torch.zeros(len(rows), length, dtype=torch.long)
    targets = torch.zeros(len(rows), length, dtype=torch.bool)
    for index, row in enumerate(rows):
        token_ids[index, : len(row.token_ids)] = torch.tensor(row.token_ids)
        targets[index, : len(row.targets)] = torch.tensor(row.targets)
    hidden = model.hidden_states(token_ids[:, :-1])
    chosen = targets[:, 1:]
    return functional.cross_entropy(model.logits(hidden[chosen]), token_ids[:, 1:][chosen])


def pretrain(model: DemoModel, tokenizer: Tokenizer, random: Random, steps: int, corpus: Iterator[Document]) -> float:
    """Train in place; returns the mean loss of the last 100 steps."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)
    losses: list[float] = []
    start = time.perf_counter()
    model.multiply_in(torch.bfloat16)
    for step, rows in enumerate(batches(random, tokenizer, corpus)):
        if step == steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = batch_loss(model, rows)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            seconds = time.perf_counter() - start
            print(f"step {step + 1}/{steps}  loss {math.fsum(losses[-100:]) / 100:.3f}  {seconds:.0f} s", flush=True)
    model.multiply_in(torch.float32)
    return math.fsum(losses[-100:]) / len(losses[-100:])


def measure_problems(
    model: DemoModel, tokenizer: Tokenizer, programs: tuple[Program, ...], seed: int, samples: int
) -> Measurement:
    """Rates at temperature 1 over `samples` responses a problem, or of the greedy response when `samples` is 0."""
    random = Random(seed)
    repeated = programs * max(1, samples)
    generator = torch.Generator().manual_seed(seed) if samples else None
    with Interpreter() as interpreter:
        episodes = play(
            model,
            tokenizer,
            [program.question(random) for program in repeated],
            interpreter=interpreter,
            generator=generator,
        )
    return measure(episodes, tokenizer, [str(program.values[-1]) for program in repeated])


def is_acceptable(measured: Measurement) -> bool:
    """Whether there is something to learn and something to learn from, at temperature 1."""
    bounds = (ACCEPTED_ACCURACY, ACCEPTED_CODE_RATIO, ACCEPTED_PASS_RATIO)
    rates = (measured.accuracy, measured.code_ratio, measured.pass_ratio)
    return all(low <= rate <= high for rate, (low, high) in zip(rates, bounds, strict=True))


def main() -> None:
    """Pre-train the demo's base model and write its directory, if it is fit for the demo."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the model and its tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of 2,560 tokens")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; more than one gains little")
    parser.add_argument("--keep-rejected", action="store_true", help="write the model even if it is not accepted")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    tokenizer = corpus_tokenizer(options.seed)
    shape = ModelShape(vocabulary=tokenizer.get_vocab_size())
    model = DemoModel(shape)
    generator = torch.Generator().manual_seed(options.seed)
    model.initialize(generator)
    install_induction_heads(model, generator)
    random = Random(options.seed)
    problems = problem_set()
    corpus = documents(random, problems.is_evaluated())
    loss = pretrain(model, tokenizer, random, options.steps, corpus)
    print(f"loss {loss:.3f} (mean of the last 100 steps)")

    accepted = True
    for name, programs in (("seen", problems.seen), ("heldout", problems.heldout), ("three_step", problems.three_step)):
        sampled = measure_problems(model, tokenizer, programs, options.seed, samples=2)
        greedy = measure_problems(model, tokenizer, programs, options.seed, samples=0)
        print(f"{name:10}  T=1 {sampled}  greedy {greedy.accuracy:.3f}", flush=True)
        accepted &= name == "three_step" or is_acceptable(sampled)
    if not accepted and not options.keep_rejected:
        raise SystemExit("the base model is outside the acceptance window; nothing was written")
    save_tokenizer(tokenizer, options.output)
    save_model(model, options.output, end_of_text_id(tokenizer))
    print(f"wrote {options.output} ({'accepted' if accepted else 'not accepted'})")


if __name__ == "__main__":
    main()
