import numpy as np
import pytest

from hf_mars.decoding.step_costs import StepCosts


def true_seconds(rows, columns):
    """A machine on which the second column costs more than the next ones."""
    return 0.05 + 0.002 * rows + 0.0015 * rows * columns + (0.01 if columns > 1 else 0)


def learn(costs, level=lambda step: 1.0, num_steps=400, seed=0):
    random = np.random.default_rng(seed)
    for step in range(num_steps):
        rows, columns = random.choice([8, 8, 7, 4, 1]), random.choice([1, 2, 3, 3, 5, 7])
        noise = 1 + 0.05 * random.random() + 2 * (random.random() < 0.03)  # now and then another process comes between
        costs.observe(int(rows), int(columns), level(step) * noise * true_seconds(rows, columns))
    return costs


@pytest.mark.parametrize(
    "level",
    [lambda step: 1.0, lambda step: 1 + step / 200, lambda step: 2.0 if step // 40 % 2 else 1.0],
    ids=["steady", "longer and longer texts", "a machine that is shared at times"],
)
@pytest.mark.parametrize("rows", [1, 4, 6, 8])
def test_ratios_are_learned_whatever_slows_all_steps_alike(rows, level):
    estimate = learn(StepCosts(), level).estimate(rows)
    expected = np.array([true_seconds(rows, columns) / true_seconds(rows, 1) for columns in range(1, 11)])
    np.testing.assert_allclose(estimate[:10], expected, rtol=0.08)


def test_a_narrower_step_never_costs_more():
    costs = StepCosts()
    for _ in range(50):
        costs.observe(2, 1, 0.1)
        costs.observe(2, 4, 0.06)  # clocks lie
    assert (np.diff(costs.estimate(2)) >= 0).all() and costs.estimate(2)[0] == 1


def test_prompts_say_nothing_of_steps():
    costs = StepCosts()
    costs.observe(4, 1000, 5.0)
    np.testing.assert_array_equal(costs.estimate(4), StepCosts().estimate(4))


def test_plain_steps_of_about_so_many_rows_are_known_after_three():
    costs = StepCosts()
    for rows in (8, 5, 6):
        assert not costs.is_known(4)
        costs.observe(rows, 1, 0.1)
    assert costs.is_known(4) and not costs.is_known(1)
