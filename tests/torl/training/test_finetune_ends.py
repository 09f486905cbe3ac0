"""A base model that learns to end its messages with another token than its own: the exported model stops there."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from torl.__main__ import main
from torl.run.config import FinetuneConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.training.supervised_run import finetune

pytestmark = pytest.mark.usefixtures("forked_ranks")

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION, ANSWER, LIMIT = "Compute 2 * 3.", "The answer is 6.", 64
# vLLM's own entry point, with its defaults: it reads generation_config.json, as `vllm serve` does.
GENERATE = f"""
import json, pathlib, sys
if __name__ == "__main__":
    from vllm import LLM, SamplingParams
    model = LLM(sys.argv[1], dtype="float32", max_model_len=256, enforce_eager=True)
    sampling = SamplingParams(temperature=0, max_tokens={LIMIT})
    (output,) = model.chat([{{"role": "user", "content": {QUESTION!r}}}], sampling)
    pathlib.Path(sys.argv[2]).write_text(json.dumps([output.outputs[0].text, output.outputs[0].finish_reason]))
"""


@pytest.fixture(scope="module")
def base_model(tiny_model_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests' model, which ends with <|endoftext|>, with the tokens and the template of ChatML."""
    directory = tmp_path_factory.mktemp("base") / "model"
    AutoModelForCausalLM.from_pretrained(tiny_model_directory).save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_directory)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
async def exports(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The model of a fine-tuning run, and that of its last checkpoint."""
    directory = tmp_path_factory.mktemp("ends")
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    (directory / "train.jsonl").write_text((json.dumps({"messages": messages}) + "\n") * 4)
    settings = {
        "model.path": str(base_model),
        "rollout.format": "hermes",
        "finetune.train": str(directory / "train.jsonl"),
        "finetune.batch_size": 4,
        "run.directory": str(directory / "run"),
        "run.steps": 25,
        "run.trackers": {},
        "data.evaluation": {},
        "learner.dtype": "float32",
        "learner.learning_rate": 5e-3,
        "learner.cpu_threads": 1,
        "evaluation.every_steps": 0,
    }
    config = load_config(FinetuneConfig, find_config("demo"), settings)
    with Console(io.StringIO()) as console:
        await finetune(config, console)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        assert main(["export", "run", "exported"]) == 0
    return [directory / "run/model", directory / "exported"]


def test_transformers_and_vllm_stop_where_a_trained_message_ended(exports: list[Path], tmp_path: Path) -> None:
    for directory in exports:
        tokenizer = AutoTokenizer.from_pretrained(directory)
        own, learned = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
        assert GenerationConfig.from_pretrained(directory).eos_token_id == [own, learned]
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        written = model.generate(**asked, max_new_tokens=LIMIT, do_sample=False)[0, asked["input_ids"].shape[1] :]
        assert tokenizer.decode(written) == f"{ANSWER}<|im_end|>"
    script, output = tmp_path / "generate.py", tmp_path / "output.json"
    script.write_text(GENERATE)
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(script), str(exports[0]), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(output.read_text()) == [ANSWER, "stop"]
