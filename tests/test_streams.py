"""Random streams: named, seeded, apart from each other."""

from __future__ import annotations

from sharpen.streams import derive, generator, permutation


def test_a_path_is_a_stream() -> None:
    seeds = [derive(1, "a", 2), derive(1, "a", "2"), derive(1, "a2"), derive(2, "a", 2), derive(1, 2, "a"), derive(1, "a", 2, 0)]
    assert len(set(seeds)) == len(seeds)
    assert derive(1, "a", 2) == seeds[0]
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_streams_are_the_same_everywhere() -> None:
    # Literal values: another machine or release that draws otherwise would break resumed runs.
    assert derive(42, "rollout", 1, 0, 0, 3) == 15313377370706221571
    assert generator(0, "x").random(3).tolist() == [0.2888559916417972, 0.5331706580708958, 0.17501597765163057]
    assert permutation(5, 0, "p") == [0, 1, 4, 3, 2]


def test_permutation() -> None:
    assert sorted(permutation(10, 0, "p")) == list(range(10))
    assert permutation(10, 0, "p") == permutation(10, 0, "p") != permutation(10, 1, "p")
