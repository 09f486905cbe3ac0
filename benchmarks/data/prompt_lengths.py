"""How many problems of each set the presets keep, in a model's vocabulary, and how long the longest prompts are.

    python -m benchmarks.data.prompt_lengths TOKENIZER SET... [--presets torl_7b ...]

TOKENIZER is the directory of a model, or a file of ranks (`qwen.tiktoken`) whose texts are split as Qwen splits them. A
set is a file of problems. For each preset: the problems that fit its limit in training, those that fit its limit in an
evaluation (where the others count as not solved), and the longest prompt in tokens, in the preset's template.
"""

import argparse
import unicodedata
from pathlib import Path

from torl.components.data import load_problems
from torl.components.text.prompt_encoder import TextTokenizer
from torl.components.text.prompts import encode_prompts
from torl.components.text.tokenizer import load_tokenizer
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config

QWEN_SPLITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WITHOUT_LIMIT = 10**9
COMPARED = ("torl_7b", "ztrl_ppo_7b", "orz_ppo_7b", "simplerl_grpo_7b", "dapo", "simpletir")


class Ranks:
    """A file of ranks as a tokenizer of plain text."""

    eos_token_id = None

    def __init__(self, path: Path) -> None:
        """Read the file."""
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe

        self._encoding = tiktoken.Encoding(
            "qwen", pat_str=QWEN_SPLITS, mergeable_ranks=load_tiktoken_bpe(str(path)), special_tokens={}
        )

    def encode(self, text: str) -> list[int]:
        """The tokens of a text in Unicode's composed form, as Qwen's normalizer makes it."""
        return self._encoding.encode_ordinary(unicodedata.normalize("NFC", text))


def cell(path: Path, config: TrainConfig, tokenizer: TextTokenizer) -> str:
    """The row of the table for a set and a preset."""
    template = config.data.template.bind()
    prompts = encode_prompts(load_problems(path), tokenizer, template, WITHOUT_LIMIT).prompts
    lengths = [len(prompt.token_ids) for prompt in prompts]
    limits = config.data.max_prompt_tokens, config.evaluation.longest_prompt(config.data)
    trained, evaluated = (sum(length <= limit for length in lengths) for limit in limits)
    return f"{trained} / {evaluated} / {max(lengths)}"


def main() -> None:
    """Print the table, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--presets", nargs="+", default=COMPARED)
    arguments = parser.parse_args()
    tokenizer = Ranks(arguments.tokenizer) if arguments.tokenizer.is_file() else load_tokenizer(arguments.tokenizer)
    configs = {name: load_config(TrainConfig, find_config(name)) for name in arguments.presets}
    limits = [
        f"{each.data.max_prompt_tokens} / {each.evaluation.longest_prompt(each.data)} / -" for each in configs.values()
    ]
    print("| set | problems |", " | ".join(f"`{name}`" for name in configs), "|")
    print("|---|---:|" + "---:|" * len(configs))
    print("| limits | - |", " | ".join(limits), "|")
    for path in arguments.sets:
        cells = [cell(path, config, tokenizer) for config in configs.values()]
        print(f"| {path.stem} | {len(load_problems(path))} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
