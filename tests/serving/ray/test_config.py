import pytest

from hf_mars.serving.ray import RayServingConfig


def test_settings_come_from_a_command_line():
    settings = RayServingConfig(**{"checkpoint": "x", "max_replicas": "3", "num_gpus": "0.5", "verify": "false"})
    assert (settings.max_replicas, settings.num_gpus, settings.verify) == (3, 0.5, False)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_rows": 0}, "max_rows"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas"),
        ({"max_queued_requests": 4}, "max_n"),
        ({"policy": "bold"}, "policy"),
        ({"threshold_min": 0.99}, "threshold_min"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"dtype": "int8"}, "dtype"),
        ({"replicas": 2}, "replicas"),
        ({"max_rows": "many"}, "max_rows"),
        ({"target_ongoing_requests": 0}, "target_ongoing_requests"),
        ({"num_gpus": -1}, "num_gpus"),
        ({"port": 8000}, "port"),
    ],
)
def test_wrong_settings(wrong, named):
    with pytest.raises(ValueError, match=named):
        RayServingConfig(checkpoint="x", **wrong)
