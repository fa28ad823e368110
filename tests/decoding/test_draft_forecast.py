import numpy as np

from hf_mars.decoding.draft_forecast import DraftForecast, HoldRates


GREEDY, SAMPLED = np.array([False]), np.array([True])


def test_rates_are_counted_by_confidence():
    rates, random = HoldRates(), np.random.default_rng(0)
    for _ in range(2000):
        confidence = random.random()
        holds = random.random() < confidence**2  # less often than it is sure
        rates.observe(np.array([[confidence]]), GREEDY, np.array([1]), np.array([int(holds)]))
    confidences = np.array([[0.25, 0.45, 0.65, 0.85, 0.92]])
    np.testing.assert_allclose(rates.estimate(confidences, GREEDY), confidences**2, atol=0.12)


def test_rows_that_sample_are_counted_apart():
    rates = HoldRates()
    for _ in range(100):
        rates.observe(np.array([[0.75]]), SAMPLED, np.array([1]), np.array([0]))
    assert rates.estimate(np.array([[0.75]]), SAMPLED) < 0.05 < 0.7 < rates.estimate(np.array([[0.75]]), GREEDY)


def test_drafts_after_one_that_failed_are_not_counted():
    rates, before = HoldRates(), HoldRates()
    confidences = np.array([[0.15, 0.75, 0.97]])
    rates.observe(confidences, GREEDY, np.array([3]), np.array([0]))
    ratio = rates.estimate(confidences, GREEDY) / before.estimate(confidences, GREEDY)
    assert ratio[0, 0] < ratio[0, 1] == ratio[0, 2], "the others change by the common correction alone"


def test_a_text_whose_drafts_hold_less_often_is_noticed_at_once():
    rates, random = HoldRates(), np.random.default_rng(0)

    def observe(number, holds):
        for _ in range(number):
            held = (random.random((1, 1)) < holds).sum()
            rates.observe(np.array([[random.choice([0.55, 0.65, 0.75, 0.85])]]), GREEDY, np.array([1]), held[None])

    observe(1500, holds=0.8)
    observe(60, holds=0.4)
    (estimates,) = rates.estimate(np.array([[0.55, 0.65, 0.75, 0.85]]), GREEDY)
    assert (estimates < 0.55).all()
    observe(500, holds=0.0)
    assert (rates.estimate(np.array([[0.85]]), GREEDY) > 0.05).all(), "a draft that is never tried corrects nothing"


def test_a_row_has_its_own_average_which_begins_with_that_of_all():
    shared = 0.5 ** np.arange(1.0, 5)
    forecast, first, second = DraftForecast(shared), object(), object()
    forecast.follow([first, second])
    for _ in range(30):
        forecast.observe(np.array([[0.9, 0.8], [0.1, 0.0]]), np.array([2, 0]))
    np.testing.assert_allclose(forecast.survival[0, :2], [0.9, 0.8], atol=0.01)
    assert (np.diff(forecast.survival[0]) <= 0).all(), "later drafts hold less often"
    np.testing.assert_allclose(forecast.survival[1], 0.5 ** np.arange(1.0, 5)), "no drafts say nothing"
    forecast.follow([second, first, object()])
    np.testing.assert_allclose(forecast.survival[1, :2], [0.9, 0.8], atol=0.01)
    np.testing.assert_allclose(forecast.survival[2], shared), "a new row begins with what all rows had"
    assert shared[0] > 0.6


def test_one_draft_moves_what_would_follow_it():
    forecast = DraftForecast(np.array([0.5, 0.4, 0.2]))
    forecast.follow([object()])
    for _ in range(40):
        forecast.observe(np.array([[0.25]]), np.array([1]))
    np.testing.assert_allclose(forecast.survival[0], [0.25, 0.2, 0.1], atol=0.01)
