"""The process of a learner rank, which executes the controller's requests.

    python -m torl.learner.worker PARENT --rank R --world-size N --connection FD
    python -m torl.learner.worker PARENT --rank R --world-size N --controller HOST:PORT

The controller redirects standard output and error to the log of this rank.
"""

import argparse
import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import NoReturn

from torl.base.runtime.processes.children import die_with_parent
from torl.base.runtime.processes.hangs import enable_stack_dumps
from torl.base.runtime.processes.resources import exclude_from_collection
from torl.learner.messages import (
    RankReply,
    RankRequest,
    RowComputed,
    ShardWritten,
    ShutDown,
    request_name,
)
from torl.learner.process_group import exit_rank, select_gloo_interface
from torl.learner.rank import Rank
from torl.learner.rank_connection import KEY_VARIABLE, ControllerAddress, connect_to_controller


def serve(connection: Connection, rank: int, world_size: int) -> int:
    """Execute the controller's requests until `ShutDown` or until it exits, and return the exit status.

    The first message is the `RankSetup`. An error ends the rank: other ranks may be waiting for it in a collective, and
    only the controller can end them.
    """
    lock = threading.Lock()  # the thread that writes checkpoints sends messages as well

    def send(message: RankReply | RowComputed | ShardWritten) -> None:
        with lock:
            connection.send(message)

    try:
        worker = Rank(connection.recv(), rank, world_size, send)
        exclude_from_collection()  # DeepSpeed collects garbage at each move of the state
        send(RankReply(worker.shares_prompts))
        while True:
            request: RankRequest = connection.recv()
            start = time.perf_counter()
            value = worker.execute(request)
            print(f"{request_name(request)}: {time.perf_counter() - start:.3f} s", flush=True)
            send(RankReply(value))
            if isinstance(request, ShutDown):
                return 0
    except (EOFError, ConnectionError):
        print("the controller has exited", file=sys.stderr, flush=True)
        return 1
    except BaseException as error:
        text = traceback.format_exc()
        print(text, file=sys.stderr, flush=True)
        send(RankReply(error=type(error).__name__, message=str(error), traceback=text))
        return 1


def main() -> NoReturn:
    """Run a rank."""
    enable_stack_dumps()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parent", type=int, help="id of the process that started this one")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--connection", type=int, help="file descriptor of a socket to the controller")
    parser.add_argument("--controller", help="HOST:PORT of a controller on another machine")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)  # a long computation would not notice a closed connection
    if arguments.controller is not None:
        host, _, port = arguments.controller.rpartition(":")
        controller = ControllerAddress(host, int(port), os.environ.pop(KEY_VARIABLE))
        select_gloo_interface(controller.host, controller.port)
        exit_rank(serve(connect_to_controller(controller, arguments.rank), arguments.rank, arguments.world_size))
    exit_rank(serve(Connection(arguments.connection), arguments.rank, arguments.world_size))


if __name__ == "__main__":
    main()
