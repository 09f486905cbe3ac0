"""Threads whose result does not depend on who runs when: each program prints the same natively."""

# %% threads add up
import threading

total, lock = 0, threading.Lock()


def add(n):
    global total
    for i in range(n):
        with lock:
            total += i


threads = [threading.Thread(target=add, args=(n,)) for n in (100, 200, 300)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(total, lock.locked(), [thread.is_alive() for thread in threads])
# %% names, numbers and what is a thread's own
import threading

own = threading.local()
own.x = "main"
found = []


def work():
    own.x = threading.current_thread().name
    found.append((hasattr(own, "y"), own.x, threading.current_thread() is threading.main_thread()))


for i in range(3):
    thread = threading.Thread(target=work, name=f"worker {i}", daemon=True)
    thread.start()
    thread.join()
print(found, own.x, threading.current_thread().name, threading.active_count())
print(len({threading.get_ident(), thread.ident}), thread.daemon, thread.name)
# %% a class of its own
import threading


class Square(threading.Thread):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def run(self):
        self.result = self.x**2


threads = [Square(i) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([thread.result for thread in threads])
try:
    threads[0].start()
except RuntimeError as error:
    print(error)
# %% an exception ends a thread and nothing else
import threading

threading.excepthook = lambda what: print(what.exc_type.__name__, what.exc_value, what.thread.name)
thread = threading.Thread(target=lambda: 1 / 0, name="t")
thread.start()
thread.join()
print("goes on")
# %% workers that empty a queue
import queue, threading

todo, done = queue.Queue(), queue.Queue()
for i in range(10):
    todo.put(i)


def work():
    while True:
        try:
            item = todo.get(timeout=0.05)
        except queue.Empty:
            return
        done.put(item * item)
        todo.task_done()


threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
todo.join()
[thread.join() for thread in threads]
print(sorted(done.get() for _ in range(done.qsize())))
todo.put(1)
print(todo.get())
# %% a producer and a consumer
import queue, threading

channel = queue.Queue()


def produce():
    for i in range(5):
        channel.put(i)
    channel.put(None)


def consume():
    while (item := channel.get()) is not None:
        print(item)


threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
# %% events, semaphores, conditions and reentrant locks that let through
import threading

event, semaphore, lock, condition = threading.Event(), threading.Semaphore(2), threading.RLock(), threading.Condition()


def work():
    event.set()
    with semaphore, lock, lock:
        print("inside")
    with condition:
        condition.notify_all()


thread = threading.Thread(target=work)
thread.start()
thread.join()
print(event.wait(), event.is_set(), semaphore.acquire(timeout=0.01), lock.acquire(blocking=False))
# %% waits that are over when their time is
import queue, threading, time

start = time.monotonic()
print(threading.Event().wait(0.05), queue.Queue().get_nowait if False else None)
try:
    queue.Queue().get(timeout=0.05)
except queue.Empty:
    print("empty")
lock = threading.Lock()
print(lock.acquire(), lock.acquire(timeout=0.05), lock.acquire(blocking=False))
condition = threading.Condition()
with condition:
    print(condition.wait(0.05))
print(0.2 <= time.monotonic() - start < 20)
# %% a pool of threads
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
import threading

with ThreadPoolExecutor(max_workers=3, thread_name_prefix="w") as pool:
    futures = [pool.submit(pow, i, 2) for i in range(5)]
    print(sorted(future.result() for future in as_completed(futures)), all(future.done() for future in futures))
    print(list(pool.map(lambda x, y: x * y, range(4), range(4))))
    failed = pool.submit(int, "x")
    print(repr(failed.exception()), wait([failed]).not_done)
    print(pool.submit(lambda: threading.current_thread().name.startswith("w_")).result())
    futures[0].add_done_callback(lambda future: print("called", future.result()))
try:
    pool.submit(print)
except RuntimeError as error:
    print(error)
# %% an initializer for each thread of a pool
from concurrent.futures import ThreadPoolExecutor
import threading

own = threading.local()


def begin(value):
    own.value = value


with ThreadPoolExecutor(2, initializer=begin, initargs=(7,)) as pool:
    print([pool.submit(lambda: own.value).result() for _ in range(3)], hasattr(own, "value"))
# %% a pool of threads of multiprocessing
from multiprocessing.pool import ThreadPool
from multiprocessing.dummy import Pool

with ThreadPool(3) as pool:
    print(pool.map(lambda x: x + 1, range(5)), pool.apply(max, (1, 2)))
    print(list(pool.imap(str, range(3))), sorted(pool.imap_unordered(str, range(3))))
with Pool(2) as pool:
    print(pool.starmap(pow, [(2, 3), (3, 2)]), pool.apply_async(len, ("abc",)).get(timeout=50))
# %% a timer that goes off
import threading, time

timer = threading.Timer(0.2, print, ["gone off"])
timer.start()
print("before", timer.is_alive())
time.sleep(1)
print("after", timer.is_alive())
# %% a timer that is waited for, one that is cancelled, and one at the end
import threading

timer = threading.Timer(0.05, lambda: print("one"))
timer.start()
print("waiting")
timer.join()
cancelled = threading.Timer(30, print, ["never"])
cancelled.start()
cancelled.cancel()
cancelled.join()
event = threading.Event()
threading.Timer(0.05, event.set).start()
print(event.wait(30), event.is_set())
threading.Timer(0.2, print, ["at the end"]).start()
print("end")
# %% low-level threads
import _thread, time

_thread.start_new_thread(print, ("from a thread",))
time.sleep(0.5)
lock = _thread.allocate_lock()
with lock:
    print(lock.locked())
print(lock.locked())
# %% a barrier for one, and a countdown
import threading

barrier = threading.Barrier(1)
print(barrier.wait(), barrier.n_waiting, barrier.broken)
left = threading.Semaphore(0)
for _ in range(3):
    threading.Thread(target=left.release).start()
for _ in range(3):
    left.acquire()
print("all")
