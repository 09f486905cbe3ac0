"""torl's turns in both of vLLM's schedulers: the one that CPUs run, and the one that GPUs run, two steps in flight."""

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rollout.lone_scheduler import BLOCK, STOP, VOCABULARY
from scheduler_memory import Bench, Device
from torl._core import Scanner, StopCondition
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.weights import EngineWeights
from torl.components.weights.rendezvous import Rendezvous

MARKER = StopCondition.marker(b"```output")
KINDS = pytest.mark.parametrize(
    ("in_flight", "runner_v2"), [(1, False), (2, False), (2, True)], ids=["one", "two", "two-v2"]
)


def script(name: str) -> list[int]:
    """Tokens sampled after a prompt: text, perhaps a block and a marker, perhaps a stop token, and then more."""
    source = random.Random(f"script-{name}")
    words = [source.choice(b"abcdefgh \n") for _ in range(source.randrange(1, 120))]
    tail = source.choice([b"\n```python\n1 + 1\n```output\nnever", b"\n```python\n2\n```\n", b""])
    return [*words, *tail, *([STOP] if source.random() < 0.7 else []), *(source.choice(b"xyz") for _ in range(700))]


def prompt(name: str) -> list[int]:
    """Prompts of one group are equal, and groups share their beginning."""
    group = name.partition("/")[0]
    return [*b"You are given a problem." * 2, *random.Random(group).choices(b"0123456789", k=23)]


def expected(name: str, max_tokens: int) -> tuple[int, ...]:
    """The turn, by reading the script from its beginning."""
    tokens = script(name)[:max_tokens]
    if STOP in tokens:
        tokens = tokens[: tokens.index(STOP) + 1]
    return tuple(tokens[: Scanner(VOCABULARY, MARKER, True).feed(tokens).consumed])


@KINDS
@pytest.mark.parametrize("blocks", [400, 48], ids=["room", "crowded"])
def test_turns_end_where_their_tokens_say(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool, blocks: int
) -> None:
    """With prompts that share blocks, chunks of prompts, and a cache that is too small for all."""
    bench = Bench(tiny_model_directory, Device(script), in_flight=in_flight, blocks=blocks, runner_v2=runner_v2)
    names = [f"{group}/{sample}" for group in range(6) for sample in range(4)]
    for number, name in enumerate(names):
        bench.add(name, prompt(name), end=MARKER, max_tokens=150, priority=number)
    bench.run()
    assert {name: turn.token_ids for name, turn in bench.turns.items()} == {n: expected(n, 150) for n in names}
    assert {turn.spans for turn in bench.turns.values()} == {((0, 0),)}
    assert {turn.reason for turn in bench.turns.values()} == {"torl_end", "stop", "length"}
    assert (blocks == 400) == (bench.preempted == 0)
    assert bench.scheduler.reset_prefix_cache()  # vLLM refuses as long as a block is in use


@KINDS
@pytest.mark.parametrize("blocks", [400, 48], ids=["room", "crowded"])
def test_skipped_allocations_would_have_changed_nothing(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool, blocks: int
) -> None:
    """Each step has the tokens, the blocks and the copies that it has if vLLM allocates for every token."""

    class Recording(Device):
        def run(self, step: Any) -> Any:
            started = [(new.req_id, new.block_ids, new.num_computed_tokens) for new in step.scheduled_new_reqs]
            cached, copies = step.scheduled_cached_reqs, step.kv_cache_block_copies or ()
            continued = cached.req_ids, cached.new_block_ids, cached.num_computed_tokens
            copied = [(copy.src_block_id, copy.dst_block_id) for copy in copies]
            steps[-1].append(repr((step.num_scheduled_tokens, started, continued, copied)))
            return super().run(step)

    steps: list[list[str]] = []
    for skips in (True, False):
        steps.append([])
        bench = Bench(tiny_model_directory, Recording(script), in_flight=in_flight, blocks=blocks, runner_v2=runner_v2)
        manager = bench.scheduler.kv_cache_manager
        assert {"allocate_slots", "cache_blocks"} <= vars(manager).keys()
        if not skips:
            del manager.allocate_slots, manager.cache_blocks
        for number in range(24):
            bench.add(f"{number % 6}/{number}", prompt(str(number % 6)), end=MARKER, max_tokens=150, priority=number)
        bench.run()
        for number in range(24):
            name = f"{number % 6}/{number}"
            context = [*prompt(name), *bench.turns[name].token_ids, *b"\n42\n```\n"]
            bench.add(f"{name} again", context, end=MARKER, max_tokens=50)
        bench.run()
    assert steps[0] == steps[1]
    assert len(steps[0]) > 150


def test_turns_with_several_tokens_in_a_step(tiny_model_directory: Path) -> None:
    """As with accepted drafts. Those after the end of a turn, the controller drops."""
    device = Device(script, drafts=2)
    bench = Bench(tiny_model_directory, device, in_flight=1, blocks=400, runner_v2=False)
    names = [str(number) for number in range(24)]
    for name in names:
        bench.add(name, prompt(name), end=MARKER, max_tokens=150)
    bench.run()
    surplus = 0
    for name in names:
        turn, tokens = bench.turns[name], expected(name, 150)
        assert turn.token_ids[: len(tokens)] == tokens
        surplus += (more := len(turn.token_ids) - len(tokens))
        assert more in (range(3) if turn.reason == "torl_end" else [0])
    assert surplus


@KINDS
def test_following_turn_computes_only_new_tokens(tiny_model_directory: Path, in_flight: int, runner_v2: bool) -> None:
    """The observation, and the token that was sampled last; keys that a step in flight wrote too much are not used."""
    texts = {str(length): [*b"a" * length, *b"\n```python\n1\n```output\nand on" * 30] for length in range(40)}
    observation = [*b"\n42\n```\n"]
    device = Device(lambda name: texts[name[1:]])
    bench = Bench(tiny_model_directory, device, in_flight=in_flight, blocks=2000, runner_v2=runner_v2)
    for name in texts:
        bench.add(f"a{name}", prompt(name), end=MARKER)
    bench.run()
    contexts = {name: [*prompt(name), *bench.turns[f"a{name}"].token_ids, *observation] for name in texts}
    ends = {(len(context) - len(observation) - 1) % BLOCK for context in contexts.values()}
    assert ends == set(range(BLOCK))
    for name, context in contexts.items():
        bench.add(f"b{name}", context, end=StopCondition.never(), max_tokens=20)
    bench.run()
    assert {device.computed[f"b{name}"] for name in texts} == {1 + len(observation)}
    assert bench.scheduler.reset_prefix_cache()


@KINDS
def test_turns_without_continuation_leave_the_cache_to_others(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool
) -> None:
    """To an episode that waits for its tool, and to a prompt that needs more than half of the cache."""
    observation = [*b"\n42\n```\n"]
    device = Device(
        lambda name: [*b"text" * (30 if name == "waiting" else 8), *b"\n```python\n1\n```output\nand on" * 30]
    )
    bench = Bench(tiny_model_directory, device, in_flight=in_flight, blocks=64, runner_v2=runner_v2)
    for number in range(64):
        name = "waiting" if number == 60 else f"left{number}"
        bench.add(name, prompt(name), end=MARKER)
        bench.run()
    context = [*prompt("waiting"), *bench.turns["waiting"].token_ids, *observation]
    bench.add("continued", context, end=StopCondition.never(), max_tokens=20)
    bench.run()
    assert device.computed["continued"] == 1 + len(observation)
    bench.add("long", [*b"long" * 140], end=MARKER)
    bench.run()
    assert bench.turns["long"].reason == "torl_end"


@KINDS
def test_following_turn_may_fill_the_cache(tiny_model_directory: Path, in_flight: int, runner_v2: bool) -> None:
    """Although a copy of the last block would need one block more."""
    device = Device(lambda name: [*b"\n```python\n1\n```output\nand on" * 30])
    bench = Bench(tiny_model_directory, device, in_flight=in_flight, blocks=1 + 8, runner_v2=runner_v2)
    bench.add("a", prompt("0"), end=MARKER)
    bench.run()
    context = [*prompt("0"), *bench.turns["a"].token_ids]
    context += b"4" * (8 * BLOCK - len(context))
    bench.add("b", context, end=StopCondition.never(), max_tokens=1)
    bench.run()
    assert bench.turns["b"].reason == "length"
    assert bench.scheduler.reset_prefix_cache()


@KINDS
def test_only_messages_with_calls_are_held_for_continuation(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool
) -> None:
    """An end token ends both, in the words of a chat model's format."""
    end = StopCondition.tagged(b"<call>", b"</call>")
    calling = {str(length): [*b"a" * length, *b"<call>1</call>\n", STOP, *b"and on" * 30] for length in range(40)}
    silent = {f"s{length}": [*b"a" * length, STOP, *b"and on" * 30] for length in range(40)}
    observation = [*b"\n42\n"]
    device = Device(lambda name: (calling | silent)[name[1:]])
    bench = Bench(tiny_model_directory, device, in_flight=in_flight, blocks=2000, runner_v2=runner_v2)
    for name in silent:
        bench.add(f"a{name}", prompt(name), end=end)
    for name in calling:
        bench.add(f"a{name}", prompt(name), end=end)
    bench.run()
    contexts = {name: [*prompt(name), *bench.turns[f"a{name}"].token_ids, *observation] for name in silent | calling}
    for name, context in contexts.items():
        bench.add(f"b{name}", context, end=StopCondition.never(), max_tokens=20)
    bench.run()
    assert {device.computed[f"b{name}"] for name in calling} == {1 + len(observation)}
    for name in silent:
        assert (
            device.computed[f"b{name}"] == 1 + len(observation) + (len(contexts[name]) - 1 - len(observation)) % BLOCK
        )
    assert bench.scheduler.reset_prefix_cache()


@KINDS
@pytest.mark.parametrize("beginning", [prompt("0"), [*b"Short"]], ids=["full blocks", "partial block"])
def test_kept_keys_are_read_by_episodes_of_their_salt_only(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool, beginning: list[int]
) -> None:
    """The device checks that no other step reads what older weights computed."""
    end, observation = StopCondition.marker(b"??"), [*b"\n42\n"]
    device = Device(lambda name: [*b"abc??", *b" and on" * 30], reads_old={"continued"})
    bench = Bench(tiny_model_directory, device, in_flight=in_flight, blocks=400, runner_v2=runner_v2)
    bench.add("old", beginning, end=end, cache_salt="0")
    bench.run()
    bench.weights_arrive(keeps_cache=True)
    context = [*beginning, *bench.turns["old"].token_ids, *observation]
    for name, tokens in (("new", beginning), ("new and equal", context)):
        bench.add(name, tokens, end=StopCondition.never(), max_tokens=20, cache_salt="1")
        bench.run()
    assert device.computed["new"] == len(beginning)
    bench.add("continued", context, end=StopCondition.never(), max_tokens=20, cache_salt="0")
    bench.run()
    assert device.computed["continued"] == 1 + len(observation)


async def test_connectors_forget_the_keys_of_older_weights(
    tiny_model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Bench(tiny_model_directory, Device(script), in_flight=1, blocks=48, runner_v2=False).scheduler
    resets = list[str]()

    class Connector:
        def reset_cache(self) -> bool:
            resets.append("connector")
            return True

    class Llm:
        async def collective_rpc(self, *_: Any, **__: Any) -> None:
            pass

        async def reset_prefix_cache(self, **options: bool) -> bool:
            return bool(scheduler.reset_prefix_cache(**options))

    monkeypatch.setattr(scheduler, "connector", Connector())
    await EngineWeights(0, VllmOptions()).receive(Llm(), Rendezvous("", 0, 1), 1, first=0, live=False)
    assert resets == ["connector"]


@KINDS
def test_new_weights_reach_turns_in_flight_and_nothing_old_is_read(
    tiny_model_directory: Path, in_flight: int, runner_v2: bool
) -> None:
    """The device checks that no step reads what other weights computed; each token says whose it is."""
    versions: dict[str, list[int]] = {}

    class Recording(Device):
        def compute(self, name: str, start: int, count: int) -> list[int]:
            tokens = super().compute(name, start, count)
            position = start + count - len(prompt(name))
            if tokens and position >= 0:
                recorded = versions.setdefault(name, [])
                del recorded[position:]
                recorded.append(self.version)
            return tokens

    bench = Bench(tiny_model_directory, Recording(script), in_flight=in_flight, blocks=400, runner_v2=runner_v2)
    names = [f"{group}/{sample}" for group in range(6) for sample in range(4)]
    for name in names[:20]:
        bench.add(name, prompt(name), end=MARKER, max_tokens=150)
    for steps in (5, 1, 30):
        for _ in range(steps):
            bench.step()
        bench.weights_arrive()
    for name in names[20:]:
        bench.add(name, prompt(name), end=MARKER, max_tokens=150)
    bench.run()
    found: dict[str, Any] = {}
    for name, turn in bench.turns.items():
        assert turn.token_ids == expected(name, 150)
        starts = [first for _, first in turn.spans]
        lengths = [stop - start for start, stop in zip(starts, [*starts[1:], len(turn.token_ids)], strict=True)]
        found[name] = [version for (version, _), length in zip(turn.spans, lengths, strict=True) for _ in range(length)]
    assert found == {name: versions[name][: len(found[name])] for name in names}
    assert max(len(turn.spans) for turn in bench.turns.values()) >= 3
