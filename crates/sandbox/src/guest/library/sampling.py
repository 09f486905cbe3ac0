"""`sklearn.utils.random.sample_without_replacement`, whose compiled form writes C's `long` into arrays of 64 bits."""

import numpy

METHODS = ("auto", "tracking_selection", "reservoir_sampling", "pool")


def sample_without_replacement(n_population, n_samples, method="auto", random_state=None):
    """Draw `n_samples` distinct integers from [0, n_population), by the same draws of `random_state` as scikit-learn.
    """
    from sklearn.utils import check_random_state

    n_population, n_samples = int(n_population), int(n_samples)
    if n_population < 0:
        raise ValueError(f"n_population should be greater than 0, got {n_population}.")
    if n_samples > n_population:
        raise ValueError(
            "n_population should be greater or equal than n_samples, got n_samples > n_population "
            f"({n_samples} > {n_population})"
        )
    if method not in METHODS:
        raise ValueError(f"Expected a method name in {METHODS}, got {method}. ")
    generator = check_random_state(random_state)
    ratio = n_samples / n_population if n_population else 1.0
    if method == "auto" and 0.01 < ratio < 0.99:
        return generator.permutation(n_population)[:n_samples]
    if method == "pool":
        drawn = _from_pool(generator.randint, n_population, n_samples)
    elif method == "reservoir_sampling" or ratio >= 0.2:
        drawn = _from_reservoir(generator.randint, n_population, n_samples)
    else:
        drawn = _by_trying(generator.randint, n_population, n_samples)
    return numpy.array(drawn, dtype=int)


def _by_trying(draw, n_population, n_samples):
    drawn = {}
    while len(drawn) < n_samples:
        drawn.setdefault(draw(n_population))
    return list(drawn)


def _from_pool(draw, n_population, n_samples):
    pool, drawn = list(range(n_population)), []
    for last in range(n_population - 1, n_population - 1 - n_samples, -1):
        place = draw(last + 1)
        drawn.append(pool[place])
        pool[place] = pool[last]
    return drawn


def _from_reservoir(draw, n_population, n_samples):
    drawn = list(range(n_samples))
    for number in range(n_samples, n_population):
        place = draw(0, number + 1)
        if place < n_samples:
            drawn[place] = number
    return drawn
