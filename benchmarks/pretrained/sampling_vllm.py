"""vLLM's side of `speed.py` for sampling: `LLM.generate` on the requests that torl has just made.

Prompts, seeds, sampling parameters, engine arguments and environment are torl's, its worker extension left out.
"""

import argparse
import json
import os
import tempfile
from dataclasses import fields
from pathlib import Path

from benchmarks.learner.train_step_problem import serve
from benchmarks.pretrained.sampling import MAX_PROMPT_TOKENS, REQUESTS, add_sampling_options, engine_peak_bytes
from torl.components.engine import EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices, engine_arguments, process_environment
from torl.components.engine.vllm.options import VllmOptions
from torl.components.text.tokenizer import load_tokenizer, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary


def main() -> None:
    """Answer turns until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_sampling_options(parser)
    arguments = parser.parse_args()
    model = arguments.directory / "model"
    tokenizer = load_tokenizer(model)
    setup = EngineSetup(
        model=model,
        vocabulary=build_vocabulary(tokenizer),
        max_model_tokens=MAX_PROMPT_TOKENS + arguments.response_tokens,
        stop_token_ids=stop_token_ids(model, tokenizer),
        log_path=arguments.directory / "unused.log",
    )
    options = VllmOptions(
        dtype=arguments.dtype,
        cpu_threads=arguments.threads,
        max_sequences=arguments.max_sequences,
        cpu_kv_cache_gib=arguments.cache_gib,
        enforce_eager=True,
    )
    devices = EngineDevices(on_cpu=True, ids=())
    with tempfile.TemporaryDirectory(prefix="vllm-") as sockets:
        for name, value in process_environment(options, Path(sockets), devices).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value  # before vLLM is imported, which reads them
        from vllm import LLM, SamplingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        words = engine_arguments(setup, options, devices, [field.name for field in fields(EngineArgs)])
        del words["worker_extension_cls"]
        llm = LLM(**words)

        def step() -> dict[str, float]:
            requests = json.loads((arguments.directory / REQUESTS).read_text())
            prompts = [TokensPrompt(prompt_token_ids=request["prompt"]) for request in requests]
            sampling = [
                SamplingParams(
                    max_tokens=arguments.response_tokens,
                    temperature=1.0,
                    seed=request["seed"],
                    stop_token_ids=list(setup.stop_token_ids),
                    logprobs=0,
                    flat_logprobs=True,
                    detokenize=False,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                )
                for request in requests
            ]
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
            responses = [list(output.outputs[0].token_ids) for output in outputs]
            equal = sum(response == request["response"] for response, request in zip(responses, requests, strict=True))
            return {
                "tokens": sum(map(len, responses)),
                "equal_responses": equal / len(requests),
                "engine_peak_bytes": engine_peak_bytes(os.getpid()),
            }

        serve(step)


if __name__ == "__main__":
    main()
