"""A separate process that sends the weights of a model directory, as the learner's rank 0 does."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path


def main() -> None:
    """Write where to meet to `--rendezvous`, then send until every receiver has acknowledged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--rendezvous", type=Path)
    parser.add_argument("--leave-out", default="")
    parser.add_argument("--bucket-bytes", type=int, default=20_000)
    parser.add_argument("--stop-after", type=int, default=None)
    parser.add_argument("--receivers", type=int, default=1)
    parser.add_argument("--transport", default="shared_memory")
    parser.add_argument("--transfers", type=int, default=1)
    arguments = parser.parse_args()

    import os

    from safetensors.torch import load_file

    from torl.components.weights.channel import WeightChannel

    weights = load_file(arguments.model / "model.safetensors")
    channel = WeightChannel.listen("127.0.0.1", arguments.receivers, transport=arguments.transport, timeout_seconds=60)
    meeting = channel.rendezvous
    temporary = arguments.rendezvous.with_suffix(".part")
    temporary.write_text(json.dumps(asdict(meeting)))
    temporary.rename(arguments.rendezvous)

    def named_tensors():
        for index, (name, tensor) in enumerate(weights.items()):
            if index == arguments.stop_after:
                os._exit(9)  # a learner that dies in the middle
            if name != arguments.leave_out:
                yield name, tensor

    for _ in range(arguments.transfers):
        channel.send(named_tensors(), bucket_bytes=arguments.bucket_bytes, checksum=True)
    channel.close()


if __name__ == "__main__":
    main()
