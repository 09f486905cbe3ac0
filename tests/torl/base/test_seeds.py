"""Seeds: stable, and different where their names differ."""

from torl.base.seeds import derive_seed


def test_seeds_do_not_change_between_versions() -> None:
    """A resumed run must draw what the run that was killed would have drawn."""
    assert derive_seed(0, 3, "problem", 1, 0) == 3921679980073545820


def test_parts_are_kept_apart() -> None:
    seeds = [derive_seed(*parts) for parts in [(1, 2), (12,), ("1", 2), ("12",), ("1", "2"), (2, 1), ("1;2",), ()]]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
