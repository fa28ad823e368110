from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    "extra_args", [None, {}, {"mars": True}, {"mars": 0.0, "mars_threshold": 1}, {"kv_transfer_params": {"a": 1}}]
)
def test_what_a_request_may_say(extra_args):
    from hf_mars_vllm.request_check import RequestCheck

    RequestCheck.validate_params(SimpleNamespace(extra_args=extra_args))


@pytest.mark.parametrize(
    ("extra_args", "match"),
    [
        ({"mars": "no"}, "`mars`.*'no'"),
        ({"mars": None}, "`mars`"),
        ({"mars_threshold": 1.5}, "`mars_threshold`.*1.5"),
        ({"mars_threshold": "0.7"}, "`mars_threshold`.*'0.7'"),
        ({"mars_threshold": True}, "`mars_threshold`.*True"),
        ({"mars_threshold": float("nan")}, "`mars_threshold`.*nan"),
        ({"mars_treshold": 0.7}, "mars_treshold"),
    ],
)
def test_what_it_may_not(extra_args, match):
    from hf_mars_vllm.request_check import RequestCheck

    with pytest.raises(ValueError, match=match):
        RequestCheck.validate_params(SimpleNamespace(extra_args=extra_args))


def test_it_leaves_logits_alone():
    from hf_mars_vllm.request_check import RequestCheck

    check, logits = RequestCheck(None, None, False), object()
    assert check.apply(logits) is logits and check.is_argmax_invariant()
