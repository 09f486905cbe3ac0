# %% [markdown]
# # 5. The sandbox alone
#
# torl's sandbox runs untrusted Python in WebAssembly. It needs no GPU, no container and no training:
# `pip install torl` without extras has it.

# %%
import torl

pool = torl.SandboxPool(2, cpu_seconds=2, memory_bytes=512 << 20)
print(pool.run("import sympy; print(sympy.factorint(2**64 - 1))").stdout)

# %% [markdown]
# Mistakes of the code are data. Each run has a status, and starts from the same fresh state.

# %%
for code in (
    "1 / 0",
    "while True: pass",
    "x = ' ' * 10**9",
    "import socket; socket.create_connection(('1.1.1.1', 80))",
):
    execution = pool.run(code)
    print(f"{execution.status:8} {execution.exception_line}")

# %% [markdown]
# The host's files are out of reach; files go in and out by value.

# %%
print(pool.run("open('/etc/passwd').read()").exception_line)
execution = pool.run("text = open('in.txt').read(); open('out.txt', 'w').write(text.upper())",
                     files={"in.txt": b"hello"}, return_files=True)  # fmt: skip
print(execution.files)

# %% [markdown]
# ## Equal runs are equal
#
# The clock and the random numbers are virtual: with the same seed, time and chance repeat.

# %%
code = "import random, time; print(random.random(), time.time())"
print(pool.run(code, seed=1).stdout, pool.run(code, seed=1).stdout, pool.run(code, seed=2).stdout, sep="")

# %% [markdown]
# ## Sessions
#
# A session keeps variables between runs. Its state is a value, so that a fork continues independently.

# %%
session = pool.session(seed=1)
session.run("x = 41")
other = session.fork()
other.run("x += 1")
print(session.run("print(x)").stdout, other.run("print(x)").stdout, sep="")

# %% [markdown]
# ## Speed
#
# A batch uses all workers. Compare it with a new Python process for each program.

# %%
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

started = time.perf_counter()
pool.run_batch([f"print({number} ** 2)" for number in range(1000)])
print(f"sandbox: {(time.perf_counter() - started):.2f} ms each")

started = time.perf_counter()
for number in range(10):
    subprocess.run([sys.executable, "-c", f"print({number} ** 2)"], capture_output=True, check=True)
print(f"processes: {(time.perf_counter() - started) * 100:.2f} ms each")

# %%
pool.close()

# %% [markdown]
# [Sandbox](../sandbox.md) has the limits and the isolation layers; [serving](../serving.md) offers it over HTTP, MCP
# and OpenEnv. Next: [read a run](6-reading.ipynb).
