"""Processes: each program prints the same natively."""

# %% a pool of processes
from multiprocessing import Pool


def square(x):
    return x * x


def add(x, y):
    return x + y


if __name__ == "__main__":
    with Pool(4) as pool:
        print(pool.map(square, range(10)), pool.starmap(add, [(1, 2), (3, 4)]), pool.apply(add, (1,), {"y": 5}))
        print(list(pool.imap(square, range(5), chunksize=2)), sorted(pool.imap_unordered(square, range(5))))
        result = pool.map_async(square, [1, 2], callback=lambda found: print("called", found))
        print(result.get(timeout=50), result.ready(), result.successful())
        try:
            pool.map(int, ["1", "x"])
        except ValueError as error:
            print(error)
    try:
        pool.map(square, [1])
    except ValueError as error:
        print(error)
# %% processes share no variables
import multiprocessing

counter, items, table = 0, [], {}


def work(n):
    global counter
    counter += n
    items.append(n)
    table[n] = counter
    print("inside", counter, items, table, flush=True)


if __name__ == "__main__":
    for n in (1, 2):
        process = multiprocessing.Process(target=work, args=(n,))
        process.start()
        process.join()
        print(process.exitcode, process.is_alive(), process.name)
    print(counter, items, table)
# %% what processes send each other
from multiprocessing import Pipe, Process, Queue


def work(queue, connection, items):
    for item in items:
        queue.put(item * item)
    items.append("mine")
    connection.send({"sum": sum(items[:-1])})
    connection.close()


if __name__ == "__main__":
    queue, (here, there), items = Queue(), Pipe(), [1, 2, 3]
    process = Process(target=work, args=(queue, there, items))
    process.start()
    print([queue.get() for _ in range(3)], here.recv(), items)
    process.join()
    print(queue.empty())
# %% memory that processes share
from multiprocessing import Array, Lock, Process, Value


def work(counter, numbers, lock):
    for i in range(100):
        with lock:
            counter.value += 1
    with numbers.get_lock():
        for i in range(len(numbers)):
            numbers[i] += i


if __name__ == "__main__":
    counter, numbers, lock = Value("i", 0), Array("d", [0.0, 0.5]), Lock()
    processes = [Process(target=work, args=(counter, numbers, lock)) for _ in range(3)]
    [process.start() for process in processes]
    [process.join() for process in processes]
    print(counter.value, list(numbers))
# %% a manager's objects
from multiprocessing import Manager, Process, Pool


def work(table, items, n):
    table[n] = n * n
    items.append(n)


def put(job):
    queue, lock, n = job
    with lock:
        queue.put(n)


if __name__ == "__main__":
    with Manager() as manager:
        table, items, queue, lock = manager.dict(), manager.list(), manager.Queue(), manager.Lock()
        for n in range(3):
            process = Process(target=work, args=(table, items, n))
            process.start()
            process.join()
        print(dict(table), list(items), len(table))
        with Pool(2) as pool:
            pool.map(put, [(queue, lock, n) for n in range(3)])
        print(sorted(queue.get() for _ in range(3)))
# %% how processes end
import sys
from multiprocessing import Process


def fails():
    raise ValueError("no")


if __name__ == "__main__":
    for target, arguments in ((fails, ()), (sys.exit, (3,)), (sys.exit, ()), (print, ("well",))):
        process = Process(target=target, args=arguments)
        process.start()
        process.join()
        print(process.exitcode)
# %% an executor of processes
import math
from concurrent.futures import ProcessPoolExecutor, as_completed


def is_prime(n):
    return n > 1 and all(n % i for i in range(2, math.isqrt(n) + 1))


if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2) as pool:
        print(list(pool.map(is_prime, range(12), chunksize=3)))
        print(sorted(future.result() for future in as_completed([pool.submit(math.factorial, n) for n in range(5)])))
        print(repr(pool.submit(int, "x").exception()))
        try:
            pool.submit(lambda: 1).result()
        except Exception as error:
            print("pickle" in str(error).lower())
# %% a worker's variables last as long as it does
from multiprocessing import Pool

base = 1


def begin(value):
    global base
    base = value


def work(x):
    return base + x


if __name__ == "__main__":
    with Pool(1, initializer=begin, initargs=(100,)) as pool:
        print(pool.map(work, range(3)))
    print(base, work(0))
# %% a process of a class of its own
import multiprocessing


class Worker(multiprocessing.Process):
    def __init__(self, queue):
        super().__init__(name="worker")
        self.queue = queue

    def run(self):
        self.queue.put(
            (self.name, multiprocessing.current_process().name, multiprocessing.parent_process() is not None)
        )


if __name__ == "__main__":
    queue = multiprocessing.get_context("fork").Queue()
    worker = Worker(queue)
    worker.start()
    print(queue.get(), multiprocessing.current_process().name)
    worker.join()
