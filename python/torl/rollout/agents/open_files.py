"""How many files this process may have open, which bounds how many programs and connections there can be."""

import resource

from torl.errors import ConfigError

_OF_THE_RUN = 512  # logs, records, the engine's and the learner's sockets, tools
_OF_A_PROGRAM = 6  # of a command: two pipes, the question, its process
_CONNECTIONS = 2  # of each program, at least; of a function both ends are open here


def connection_limit(programs: int) -> int:
    """How many connections of programs can be open at once; the limit of open files is raised where that must be.

    Args:
        programs: that run at once.

    Raises:
        ConfigError: this process may not have so many files open.
    """
    soft, hard = (
        limit if limit != resource.RLIM_INFINITY else 1 << 30 for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    needed = _OF_THE_RUN + (_OF_A_PROGRAM + 2 * _CONNECTIONS) * programs
    if needed > hard:
        raise ConfigError(
            f"rollout.agent.max_concurrent = {programs} needs {needed} open files, and this process may have {hard}: "
            "raise the limit (ulimit -Hn), or set max_concurrent lower"
        )
    if needed > soft:
        soft = needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return (soft - _OF_THE_RUN - _OF_A_PROGRAM * programs) // 2
