import pytest

from hf_mars.serving import Load, LoadLevels, ThresholdPolicy


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def load(running, queued=0, kv_use=0.0):
    return Load(running, queued, max_rows=10, kv_use=kv_use)


def test_lossy_thresholds_fall_with_the_load_and_come_back():
    clock = Clock()
    policy = ThresholdPolicy("adaptive", 0.5, 0.9, clock=clock, patience=1.0)
    assert policy.threshold() == 0.9
    policy.update(load(5))
    assert policy.threshold() == 0.9, "half full is no load"
    policy.update(load(10, queued=3))
    assert policy.threshold() == pytest.approx(0.5), "at once, when it is full"
    seen = []
    for _ in range(60):
        clock.now += 0.1
        policy.update(load(1))
        seen.append(round(policy.threshold(), 3))
    assert sorted(set(seen)) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert seen == sorted(seen)
    assert seen.count(0.6) == 10, "one level back a second"


def test_it_does_not_flutter_at_the_edge_of_a_level():
    clock = Clock()
    policy = ThresholdPolicy("adaptive", levels=LoadLevels(num_levels=4, margin=0.05), patience=1.0, clock=clock)
    policy.update(load(10))
    levels = set()
    for step in range(100):
        clock.now += 0.5
        policy.update(load(10) if step % 2 else Load(97, 0, 100, 0.0))
        levels.add(policy.level)
    assert levels == {4}


def test_a_calm_moment_that_ends_too_soon_counts_for_nothing():
    clock = Clock()
    policy = ThresholdPolicy("adaptive", clock=clock, patience=1.0)
    policy.update(load(10))
    for _ in range(10):
        clock.now += 0.9
        policy.update(load(0))
        policy.update(load(10))
    assert policy.level == policy.levels.num_levels


def test_memory_is_load_too():
    policy = ThresholdPolicy("adaptive")
    policy.update(load(1, kv_use=1.0))
    assert policy.level == policy.levels.num_levels


def test_lossless_needs_no_threshold():
    policy = ThresholdPolicy("lossless", 0.5, 0.9)
    assert policy.verify and policy.threshold() is None
    policy.pin(0.7)
    assert policy.threshold() == policy.draft_threshold() == 0.7


@pytest.mark.parametrize("verify", [False, True])
def test_fixed_stays(verify):
    policy = ThresholdPolicy("fixed", threshold_max=0.8, verify=verify)
    policy.update(load(10, queued=50))
    assert policy.threshold() == policy.draft_threshold() == policy.lossy_threshold() == 0.8
    assert policy.verify is verify


def test_a_pinned_threshold_stays_until_it_is_let_go():
    policy = ThresholdPolicy("adaptive", 0.5, 0.9)
    policy.pin(0.7)
    policy.update(load(10))
    assert policy.threshold() == policy.draft_threshold() == 0.7
    policy.pin(None)
    assert policy.threshold() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="threshold"):
        policy.pin(1.5)


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"kind": "greedy"}, "policy"),
        ({"threshold_min": 0.9, "threshold_max": 0.5}, "threshold_min"),
        ({"threshold_max": 1.5}, "threshold_max"),
        ({"kind": "adaptive", "verify": True}, "verify"),
        ({"patience": -1.0}, "patience"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        ThresholdPolicy(**arguments)


@pytest.mark.parametrize(
    "arguments, name",
    [({"low": 1.0, "high": 0.5}, "low"), ({"num_levels": 0}, "num_levels"), ({"margin": -0.1}, "margin")],
)
def test_bad_levels_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        LoadLevels(**arguments)
