"""Static shapes, compilation, and several processes."""

import pytest
import torch
import torch.distributed as dist
from transformers import CompileConfig, GenerationMixin

from tests.processes import run_processes
from tests.tiny import EOS, ragged_prompts, tiny_model


pytestmark = pytest.mark.integration


NEW_TOKENS = 24


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8])
def test_static_shapes_give_the_same_tokens(model, threshold, verify):
    arguments = {
        **ragged_prompts([5, 9, 3]),
        "max_new_tokens": NEW_TOKENS,
        "eos_token_id": [EOS, 41],
        "mars_threshold": threshold,
        "mars_verify": verify,
        "return_dict_in_generate": True,
    }
    expected = model.generate(**arguments)
    shapes = set()
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.add((kwargs["input_ids"].shape, kwargs["attention_mask"].shape)),
        with_kwargs=True,
    )
    output = model.generate(**arguments, cache_implementation="static")
    hook.remove()
    assert output.sequences.tolist() == expected.sequences.tolist()
    assert output.acceptance_lengths == expected.acceptance_lengths
    assert len(shapes) == 2, "one shape for the prompt, one for every step after it"
    assert (3, 2 * 4 - 1) in {input_ids for input_ids, _ in shapes}


@pytest.mark.parametrize("verify", [False, True])
def test_compiled_steps_are_not_compiled_again_after_the_first(verify):
    torch._dynamo.reset()
    model = tiny_model(sharpness=8.0, similarity=2.0, dtype=torch.float32)
    config = CompileConfig(backend="eager", mode=None, fullgraph=True)
    config._compile_all_devices = True
    arguments = {
        "max_new_tokens": NEW_TOKENS,
        "eos_token_id": None,
        "mars_threshold": 0.3,
        "mars_verify": verify,
        "cache_implementation": "static",
        "compile_config": config,
        "return_dict_in_generate": True,
    }
    prompts = ragged_prompts([5, 9])
    output = model.generate(**prompts, **arguments)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs >= 1
    with torch.compiler.set_stance("fail_on_recompile"):
        again = model.generate(**ragged_prompts([9, 4], seed=1), **arguments)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert output.num_forward_passes < NEW_TOKENS and again.num_forward_passes < NEW_TOKENS
    if verify:
        expected = GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS, eos_token_id=None)
        assert output.sequences.tolist() == expected.tolist()


def generate_in_step(rank):
    """How many forwards a process runs, and how many tokens it generates: the second one more than the first."""
    model = tiny_model(sharpness=8.0, similarity=2.0)
    forwards = []
    # A process that stopped early would leave the other one waiting.
    model.register_forward_hook(lambda *args: (forwards.append(1), dist.all_reduce(torch.ones(1))) and None)
    arguments = {"mars_threshold": 0.3, "eos_token_id": None, "synced_gpus": True}
    output = model.generate(**ragged_prompts([5, 9]), max_new_tokens=6 + 14 * rank, **arguments)
    return len(forwards), output.shape[1] - 9


def test_processes_run_the_same_number_of_forwards(tmp_path):
    (first_forwards, first_tokens), (second_forwards, second_tokens) = run_processes(tmp_path, generate_in_step)
    assert first_forwards == second_forwards
    assert (first_tokens, second_tokens) == (6, 20)
