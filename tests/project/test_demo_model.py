"""The demo's plain-torch model against transformers, its sampler, and the assets that ship with the package."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from demo_maker.documents import Segment
from demo_maker.induction import install_induction_heads
from demo_maker.interpreter import Interpreter
from demo_maker.model import DemoModel, ModelShape, configuration, load_model, save_model
from demo_maker.pretrain import (
    STEPS,
    Row,
    batch_loss,
    document_row,
    induction_row,
    induction_share,
    is_acceptable,
    learning_rate,
)
from demo_maker.problems import problem_set
from demo_maker.sampler import MARKER, Measurement, is_correct, play
from demo_maker.tokenizer import END_OF_TEXT, end_of_text_id
from torl.base.paths import resolve_path
from torl.components.text.tokenizer import load_tokenizer
from torl.recipes.torl import TEMPLATE as TORL_TEMPLATE

SHIPPED = resolve_path("torl:demo/base_model")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose time to a second thread, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))


@pytest.fixture(scope="module")
def shipped() -> DemoModel:
    return load_model(SHIPPED)


def test_shipped_model_and_transformers_agree(shipped: DemoModel) -> None:
    reference = transformers.AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32)
    assert type(reference).__name__ == "Qwen2ForCausalLM"
    token_ids = torch.randint(0, shipped.shape.vocabulary, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = reference(token_ids).logits
        assert torch.allclose(shipped.logits(shipped.hidden_states(token_ids)), expected, atol=2e-4)


def test_shipped_config_is_the_scripts(shipped: DemoModel, tokenizer: Tokenizer) -> None:
    written = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    assert written == configuration(ModelShape(), end_of_text_id(tokenizer))
    assert tokenizer.get_vocab_size() == ModelShape().vocabulary
    weights = load_file(SHIPPED / "model.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) == 1_985_472
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert (SHIPPED / "model.safetensors").stat().st_size < 10_000_000


def test_shipped_tokenizer_loads_offline_with_its_end_token(tokenizer: Tokenizer) -> None:
    # As the rollout loads it; `AutoTokenizer` would put Qwen2's splitting rules in place of the file's own.
    loaded = load_tokenizer(SHIPPED)
    assert loaded.eos_token == loaded.pad_token == END_OF_TEXT
    assert loaded.eos_token_id == loaded.pad_token_id == end_of_text_id(tokenizer)
    text = TORL_TEMPLATE.replace("{problem}", "Find 12345 squared.") + f"```python\nprint(1)\n```\n{MARKER}\né漢\n"
    assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    assert loaded.decode(loaded(text)["input_ids"]) == text
    generation = transformers.GenerationConfig.from_pretrained(SHIPPED)
    assert generation.eos_token_id == loaded.eos_token_id


def test_one_token_at_a_time_is_the_whole_row(shipped: DemoModel) -> None:
    token_ids = torch.randint(0, shipped.shape.vocabulary, (2, 30), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        whole = shipped.hidden_states(token_ids)
        caches = shipped.new_caches(2, 30)
        pieces = [shipped.hidden_states(token_ids[:, :20], caches)]
        pieces += [shipped.hidden_states(token_ids[:, index : index + 1], caches) for index in range(20, 30)]
    assert torch.allclose(torch.cat(pieces, dim=1), whole, atol=1e-4)


def test_saving_and_loading_keeps_every_bit(shipped: DemoModel, tmp_path: Path) -> None:
    save_model(shipped, tmp_path, 1_875)
    assert (tmp_path / "model.safetensors").read_bytes() == (SHIPPED / "model.safetensors").read_bytes()


def test_the_shipped_base_uses_its_tool_and_is_still_bad(shipped: DemoModel, tokenizer: Tokenizer) -> None:
    """A coarse guard on the assets: the script's own window is narrower and measured on more episodes."""
    programs, random = problem_set().heldout[:64], Random(0)
    questions, answers = [program.question(random) for program in programs], [str(p.values[-1]) for p in programs]
    with Interpreter() as interpreter:
        generator = torch.Generator().manual_seed(0)
        episodes = play(shipped, tokenizer, questions, interpreter=interpreter, generator=generator)
    correct = [is_correct(episode, tokenizer, answer) for episode, answer in zip(episodes, answers, strict=True)]
    assert 0.05 < sum(correct) / len(correct) < 0.5
    assert 0.2 < sum(bool(episode.runs) for episode in episodes) / len(episodes) < 0.6
    ran = next(episode for episode in episodes if episode.runs and episode.runs[0].ok)
    observed = [token for token, sampled in zip(ran.token_ids, ran.sampled, strict=True) if not sampled]
    assert tokenizer.decode(observed) == f"\n{ran.runs[0].observation}\n```\n"
    first = ran.sampled.index(False)
    assert tokenizer.decode(ran.token_ids[:first]).endswith(MARKER)


def test_greedy_play_repeats(shipped: DemoModel, tokenizer: Tokenizer) -> None:
    questions = ["Find 12 plus 7.", "Let x be the product of 31 and 17. Find the digit sum of x."]
    with Interpreter() as interpreter:
        first, second = (play(shipped, tokenizer, questions, interpreter=interpreter, generator=None) for _ in range(2))
        alone = play(shipped, tokenizer, questions[1:], interpreter=interpreter, generator=None)
    assert [episode.token_ids for episode in first] == [episode.token_ids for episode in second]
    assert alone[0].token_ids == first[1].token_ids


# --- pre-training -----------------------------------------------------------------------------------------


def test_learning_rate_follows_its_shape() -> None:
    rates = [learning_rate(step, STEPS) for step in range(STEPS)]
    assert rates[0] == pytest.approx(3e-3 / 60)
    assert rates[59] == rates[int(0.4 * STEPS) - 1] == 3e-3
    assert rates[int(0.7 * STEPS)] == pytest.approx(1.5e-3, rel=1e-3)
    assert 0 < rates[-1] < 1e-5


def test_induction_rows_fade_and_repeat() -> None:
    assert induction_share(0) == 0.5
    assert induction_share(336) == induction_share(9_999) == pytest.approx(0.08)
    row = induction_row(Random(0), 100)
    half = len(row.token_ids) // 2
    assert row.token_ids[:half] == row.token_ids[half:]
    assert row.targets == [False] * half + [True] * half


def test_targets_are_the_predictable_text(tokenizer: Tokenizer) -> None:
    row = document_row(Random(0), (Segment("Find 2 plus 2.\n" * 40, False), Segment("So 4", True)), tokenizer)
    written = len(tokenizer.encode("So 4").ids)
    assert all(row.targets[-written - 1 :])
    assert 0.02 < sum(row.targets[: -written - 1]) / (len(row.targets) - written - 1) < 0.2
    assert row.token_ids[-1] == end_of_text_id(tokenizer)


def test_batch_loss_counts_targets_only_and_ignores_padding() -> None:
    model = DemoModel(ModelShape(vocabulary=50, layers=1))
    model.initialize(torch.Generator().manual_seed(0), deviation=0.2)
    short, long = Row([1, 2, 3], [False, True, True]), Row([4, 5, 6, 7, 8], [False, False, True, False, True])
    expected = []
    for row in (short, long):
        logprobs = model.logits(model.hidden_states(torch.tensor([row.token_ids]))).log_softmax(-1)[0]
        expected += [
            -logprobs[index - 1, token].item()
            for index, (token, target) in enumerate(zip(row.token_ids, row.targets, strict=True))
            if target
        ]
    assert len(expected) == 4
    assert batch_loss(model, [short, long]).item() == pytest.approx(sum(expected) / 4, rel=1e-5)


def test_bf16_products_stay_close_and_train_fp32_weights() -> None:
    model = DemoModel(ModelShape(vocabulary=50, layers=2))
    model.initialize(torch.Generator().manual_seed(0), deviation=0.1)
    row = Row(list(range(30)), [True] * 30)
    exact = batch_loss(model, [row])
    model.multiply_in(torch.bfloat16)
    narrow = batch_loss(model, [row])
    assert narrow.item() == pytest.approx(exact.item(), rel=1e-2)
    assert narrow.item() != exact.item()
    narrow.backward()
    assert all(parameter.grad is not None and parameter.grad.dtype is torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize(
    ("measured", "accepted"),
    [
        (Measurement(0.20, 0.40, 0.70), True),
        (Measurement(0.05, 0.40, 0.70), False),
        (Measurement(0.20, 0.60, 0.70), False),
        (Measurement(0.20, 0.40, 0.95), False),
    ],
)
def test_acceptance_window(measured: Measurement, accepted: bool) -> None:
    assert is_acceptable(measured) is accepted


# --- the installed induction heads ------------------------------------------------------------------------


def repeated_rows() -> list[Row]:
    random = Random(4)
    halves = [[random.randrange(ModelShape().vocabulary) for _ in range(16)] for _ in range(16)]
    return [Row(half * 2, [False] * 17 + [True] * 15) for half in halves]


def test_an_untrained_model_with_the_heads_already_copies() -> None:
    model = DemoModel(ModelShape())
    generator = torch.Generator().manual_seed(0)
    model.initialize(generator)
    with torch.inference_mode():
        before = batch_loss(model, repeated_rows()).item()
        install_induction_heads(model, generator)
        after = batch_loss(model, repeated_rows()).item()
    assert before > 7.3, "chance is log(1876) = 7.54"
    assert after < 5.5


def test_shipped_model_copies_unseen_text(shipped: DemoModel) -> None:
    with torch.inference_mode():
        assert batch_loss(shipped, repeated_rows()).item() < 2.0
