"""Cost of a transfer of weights, for each way that the machine has: bytes, copies, seconds.

    python -m benchmarks.learner.weight_transfer [--megabytes 1024] [--senders 2] [--receivers 2] [--rounds 5]

Every sender holds the same bf16 tensors, of the shapes of a Qwen2.5-1.5B's layers, and sends all of them to its
receivers; each end is a process. A receiver takes the tensors and lets them go: loading them into an engine is one
more copy for every way. For each way: seconds (median over the rounds; the first, which connects, is left out), bytes
copied by the processes as a multiple of the model (sender's and receiver's copies together, per receiver), bytes
through the machine's loopback interface as a multiple, and the bytes that are held for it at a sender. The ways take
turns within a round. The last line is JSON. With a GPU, `cuda_ipc` is measured as well; `nccl` needs two.
"""

import argparse
import json
import multiprocessing
import statistics
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torl.components.weights.channel import DEFAULT_BUCKET_BYTES, WeightChannel
from torl.components.weights.rendezvous import Endpoint, Rendezvous, TransportName

LAYER = [
    (1536, 1536),
    (256, 1536),
    (256, 1536),
    (1536, 1536),
    (8960, 1536),
    (8960, 1536),
    (1536, 8960),
    (1536,),
    (1536,),
]
COPIES = ("aten.copy_.default", "aten.clone.default")


class CopiedBytes(TorchDispatchMode):
    """Counts the bytes that torch copies in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) in COPIES:
            self.bytes += result.nbytes
        return result


def weights(megabytes: int, device: str) -> list[tuple[str, torch.Tensor]]:
    """As many layers as fit, and an embedding as large as two buckets of the channel."""
    tensors = [
        ("embedding", torch.ones(2 * DEFAULT_BUCKET_BYTES // (2 * 1536), 1536, dtype=torch.bfloat16, device=device))
    ]
    while sum(tensor.nbytes for _, tensor in tensors) < megabytes << 20:
        layer = len(tensors)
        tensors += [
            (f"{layer}.{number}", torch.ones(shape, dtype=torch.bfloat16, device=device))
            for number, shape in enumerate(LAYER)
        ]
    return tensors


def loopback_bytes() -> int:
    """Bytes that the loopback interface has carried."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next((int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:")), 0)


def run_end(meeting: Rendezvous, end: Endpoint, megabytes: int, orders: Any, answers: Any) -> None:
    """A process: one transfer for every order, and what it copied."""
    torch.set_num_threads(1)
    device = "cuda" if meeting.transport in ("cuda_ipc", "nccl") else "cpu"
    tensors = weights(megabytes, device) if end.role == "sender" else []
    channel = WeightChannel(meeting, end)
    if end == Endpoint("sender", 0):
        answers.put(channel.rendezvous)
    while orders.get() is not None:
        with CopiedBytes() as copied:
            if end.role == "sender":
                summary = channel.send(iter(tensors))
                answers.put((end, copied.bytes, summary.bytes, summary.seconds))
            else:
                for _ in channel.receive():
                    pass
                answers.put((end, copied.bytes, 0, 0.0))
    channel.close()


class Way:
    """The processes of one way."""

    def __init__(self, transport: TransportName, senders: int, receivers: int, megabytes: int) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.answers = self.context.Queue()
        self.megabytes = megabytes
        self.ends: list[tuple[Any, Any]] = []
        self.start(Rendezvous("127.0.0.1", 0, receivers, senders, transport), Endpoint("sender", 0))
        meeting = self.answers.get()
        for number in range(1, min(senders, receivers)):
            self.start(meeting, Endpoint("sender", number))
        for number in range(receivers):
            self.start(meeting, Endpoint("receiver", number))

    def start(self, meeting: Rendezvous, end: Endpoint) -> None:
        orders = self.context.Queue()
        process = self.context.Process(target=run_end, args=(meeting, end, self.megabytes, orders, self.answers))
        process.start()
        self.ends.append((process, orders))

    def transfer(self) -> tuple[float, float, float, int]:
        """(seconds, copies and loopback bytes as multiples of the model for each receiver, the model's bytes)."""
        before = loopback_bytes()
        for _, orders in self.ends:
            orders.put("go")
        answers = [self.answers.get() for _ in self.ends]
        carried = loopback_bytes() - before
        model = max(size for _, _, size, _ in answers)
        receivers = sum(end.role == "receiver" for end, *_ in answers)
        copied = sum(copied for _, copied, _, _ in answers)
        return max(seconds for *_, seconds in answers), copied / model / receivers, carried / model / receivers, model

    def close(self) -> None:
        for process, orders in self.ends:
            orders.put(None)
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024, help="at least 512, which the embedding takes")
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    names: list[TransportName] = ["gloo", "shared_memory"]
    if torch.cuda.is_available() and options.senders == options.receivers:
        names.append("cuda_ipc")
    if torch.cuda.device_count() > 1:
        names.append("nccl")
    ways = {name: Way(name, options.senders, options.receivers, options.megabytes) for name in names}
    rounds = [{name: way.transfer() for name, way in ways.items()} for _ in range(1 + options.rounds)][1:]
    for way in ways.values():
        way.close()
    found = {}
    for name in names:
        seconds = statistics.median(each[name][0] for each in rounds)
        _, copies, carried, model = rounds[-1][name]
        found[name] = {
            "bytes": model,
            "seconds": round(seconds, 4),
            "gigabytes_per_second": round(model / seconds / 1e9, 2),
            "copies": round(copies, 2),
            "loopback": round(carried, 2),
            "buffer_bytes": 2 * DEFAULT_BUCKET_BYTES,
        }
        speed = model / seconds / 1e9
        print(f"{name:14} {seconds:8.3f} s  {speed:6.2f} GB/s  {copies:4.1f} copies  {carried:4.1f} over loopback")
    print(json.dumps({"senders": options.senders, "receivers": options.receivers, "ways": found}))


if __name__ == "__main__":
    main()
