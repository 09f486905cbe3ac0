"""What asyncio does without sockets: each program prints the same natively, also on a machine that is late."""

# %% coroutines that sleep take turns
import asyncio


async def count(name, pause, times=3):
    for number in range(times):
        await asyncio.sleep(pause)
        print(name, number)
    return name


async def main():
    print(await asyncio.gather(count("a", 0.02), count("b", 0.8, 1)))
    print(await asyncio.gather(count("c", 0), failing(), return_exceptions=True))


async def failing():
    raise ValueError("no")


asyncio.run(main())
# %% sleeping takes as long as it says
import asyncio, time


async def main():
    start, loop = time.monotonic(), asyncio.get_running_loop()
    await asyncio.gather(*(asyncio.sleep(0.1) for _ in range(100)))
    print(0.1 <= time.monotonic() - start < 9, loop.time() - start < 9)  # less than one after the other


asyncio.run(main())
# %% time limits end what takes too long
import asyncio


async def slow():
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        print("cancelled")
        raise


async def main():
    try:
        await asyncio.wait_for(slow(), 0.01)
    except asyncio.TimeoutError:
        print("too slow")
    try:
        async with asyncio.timeout(0.01):
            await slow()
    except TimeoutError:
        print("again")
    print(await asyncio.wait_for(asyncio.sleep(0.01, "in time"), 30))


asyncio.run(main())
# %% a queue between a producer and consumers
import asyncio


async def producer(queue):
    for item in range(6):
        await queue.put(item)
        await asyncio.sleep(0.01)
    await queue.join()


async def consumer(name, queue, found):
    while True:
        item = await queue.get()
        found.append(item * item)
        queue.task_done()


async def main():
    queue, found = asyncio.Queue(maxsize=2), []
    consumers = [asyncio.create_task(consumer(i, queue, found)) for i in range(2)]
    await producer(queue)
    for one in consumers:
        one.cancel()
    print(await asyncio.gather(*consumers, return_exceptions=True), found, queue.empty())


asyncio.run(main())
# %% locks, semaphores, events and conditions
import asyncio


async def main():
    lock, event, semaphore, condition = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2), asyncio.Condition()
    inside = most = 0

    async def work(number):
        nonlocal inside, most
        async with semaphore:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1
        async with lock:
            print("locked", number, lock.locked())

    async def waits():
        await event.wait()
        async with condition:
            await condition.wait_for(lambda: most == 2)
            print("met")

    waiting = asyncio.create_task(waits())
    await asyncio.gather(*(work(i) for i in range(5)))
    event.set()
    await asyncio.sleep(0)
    async with condition:
        condition.notify_all()
    await waiting
    print(most)


asyncio.run(main())
# %% a task group whose task fails
import asyncio


async def fails(after):
    await asyncio.sleep(after)
    raise KeyError(after)


async def main():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(0.01))
            group.create_task(asyncio.sleep(10))
    except* KeyError as errors:
        print(errors.exceptions)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0.01, i)) for i in range(3)]
    print([task.result() for task in tasks])


asyncio.run(main())
# %% waiting for some, and as they end
import asyncio


async def main():
    tasks = [asyncio.create_task(asyncio.sleep(pause, pause)) for pause in (0.9, 0.02, 0.8)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    print(len(done), len(pending), done.pop().result())
    print([await one for one in asyncio.as_completed(pending)])


asyncio.run(main())
# %% asynchronous generators, comprehensions and context managers
import asyncio, contextlib


async def numbers(n):
    try:
        for i in range(n):
            yield i
            await asyncio.sleep(0)
    finally:
        print("closed")


@contextlib.asynccontextmanager
async def opened(name):
    print("open", name)
    yield name
    print("close", name)


async def main():
    print([i async for i in numbers(4) if i % 2])
    async with opened("x") as name:
        async for i in numbers(5):
            print(name, i)
            if i == 2:
                break


asyncio.run(main())
# %% functions in threads and executors
import asyncio, concurrent.futures, time


def blocking(x):
    time.sleep(0.01)
    return x * x


async def main():
    print(await asyncio.to_thread(blocking, 3))
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(None, blocking, 4))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(await asyncio.gather(*(loop.run_in_executor(pool, blocking, i) for i in range(4))))
    try:
        await asyncio.to_thread(int, "x")
    except ValueError as error:
        print(error)


asyncio.run(main())
# %% event loops made by hand
import asyncio


async def f(x):
    await asyncio.sleep(0.01)
    return x + 1


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
print(loop.run_until_complete(f(1)), asyncio.get_event_loop() is loop)
loop.call_later(0.02, print, "later")
loop.call_soon(print, "soon")
loop.call_later(0.04, loop.stop)
loop.run_forever()
loop.close()
print(loop.is_closed())
with asyncio.Runner() as runner:
    print(runner.run(f(2)), runner.run(f(3)))
# %% the loop of the main thread
import asyncio, warnings

warnings.simplefilter("ignore")


async def f():
    return asyncio.get_running_loop() is asyncio.get_event_loop()


print(asyncio.get_event_loop().run_until_complete(f()))
# %% a loop of its own for a thread that a coroutine starts
import asyncio, threading


async def inner():
    await asyncio.sleep(0.01)
    return asyncio.current_task() is not None


async def outer():
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(inner())))
    thread.start()
    thread.join()
    print(found, asyncio.current_task() is not None)
    await asyncio.sleep(0.01)


asyncio.run(outer())
# %% callbacks, shields and context variables
import asyncio, contextvars

name = contextvars.ContextVar("name", default="nobody")


async def greet(who):
    name.set(who)
    await asyncio.sleep(0.01)
    return name.get()


async def main():
    task = asyncio.create_task(greet("a"))
    task.add_done_callback(lambda done: print("done", done.result()))
    print(await asyncio.gather(task, greet("b")), name.get())
    shielded = asyncio.shield(greet("c"))
    print(await shielded)


asyncio.run(main())
