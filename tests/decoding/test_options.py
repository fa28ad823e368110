"""The `mars_*` arguments: ways to give them, and every mistake."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, GenerationMixin

from tests.tiny import EOS, PAD, ragged_prompts, tiny_model


NEW_TOKENS = 24


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=16.0, similarity=1.0)


@pytest.fixture
def prompts():
    return ragged_prompts([5, 9, 3])


class TestThreshold:
    def test_a_tensor_has_one_threshold_a_row(self, model, prompts):
        thresholds = [0.0, 0.6, 1.0]
        output = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=torch.tensor(thresholds),
            return_dict_in_generate=True,
        )
        for row, threshold in enumerate(thresholds):
            alone = model.generate(
                **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=threshold, return_dict_in_generate=True
            )
            assert output.acceptance_lengths[row] == alone.acceptance_lengths[row]
            length = 9 + sum(alone.acceptance_lengths[row])
            assert output.sequences[row, :length].tolist() == alone.sequences[row, :length].tolist()
        assert set(output.acceptance_lengths[2]) == {1}
        assert max(output.acceptance_lengths[0]) == 4

    def test_a_function_is_called_at_every_step(self, model, prompts):
        calls = []

        def threshold():
            calls.append(len(calls))
            return 1.0 if len(calls) <= 3 else 0.0

        output = model.generate(
            **prompts,
            max_new_tokens=11,
            mars_threshold=threshold,
            eos_token_id=None,
            return_dict_in_generate=True,
        )
        assert output.acceptance_lengths == [[1, 1, 1, 4, 4]] * 3
        assert len(calls) == output.num_forward_passes

    @pytest.mark.parametrize("value", [0.3, torch.tensor([0.3, 0.3, 0.3]), torch.tensor(0.3), lambda: 0.3])
    def test_all_forms_agree(self, model, prompts, value):
        expected = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3)
        assert model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=value).tolist() == expected.tolist()

    def test_a_function_that_turns_the_knob_under_verify_changes_no_token(self, model, prompts):
        thresholds = iter([0.0, 1.0, 0.5, 0.0] * 20)
        output = model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=lambda: next(thresholds), mars_verify=True
        )
        assert output.tolist() == GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS).tolist()


class TestModelGenerationConfig:
    @pytest.fixture
    def configured(self, model):
        model.generation_config.mars_threshold = 0.9
        yield model
        del model.generation_config.mars_threshold

    def lengths(self, model, prompts, **arguments):
        arguments = {"max_new_tokens": NEW_TOKENS, "return_dict_in_generate": True, **arguments}
        return model.generate(**prompts, **arguments).acceptance_lengths

    def test_a_field_of_the_model_counts_and_an_argument_wins(self, configured, prompts):
        own, same, other = (
            self.lengths(configured, prompts, **given)
            for given in ({}, {"mars_threshold": 0.9}, {"mars_threshold": 0.0})
        )
        assert own == same != other
        assert max(map(max, own)) > 1

    def test_a_passed_configuration_wins_over_the_model(self, configured, prompts):
        passed = GenerationConfig(eos_token_id=EOS, pad_token_id=PAD)
        passed.mars_threshold = 0.0
        assert self.lengths(configured, prompts, generation_config=passed) == self.lengths(
            configured, prompts, mars_threshold=0.0
        )

    def test_a_bad_field_is_named(self, model, prompts):
        model.generation_config.mars_threshold = 7
        try:
            with pytest.raises(ValueError, match="`mars_threshold`"):
                model.generate(**prompts, max_new_tokens=4)
        finally:
            del model.generation_config.mars_threshold


class TestMetric:
    @pytest.mark.parametrize(("metric", "threshold"), [("probability", 0.5), ("entropy", 1.0), ("margin", 0.4)])
    def test_the_metric_decides(self, model, prompts, metric, threshold):
        output = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=threshold,
            mars_metric=metric,
            return_dict_in_generate=True,
        )
        prompt = prompts["input_ids"][1:2]
        mask = model.config.mars["mask_token_id"]
        window = torch.cat([prompt, torch.full((1, 3), mask)], dim=1)
        with torch.no_grad():
            logits = model(window).logits[0, -4:].float()
        logits[:, mask] = -torch.inf
        probabilities = logits.softmax(-1)
        top = probabilities.topk(2).values
        confident = {
            "probability": top[:, 0] >= threshold,
            "entropy": torch.special.entr(probabilities).sum(-1) <= threshold,
            "margin": top[:, 0] - top[:, 1] >= threshold,
        }[metric][1:].tolist()
        expected = 1 + (confident.index(False) if False in confident else 3)
        assert output.acceptance_lengths[1][0] == expected
        assert output.tokens_per_forward > 1

    def test_entropy_has_no_upper_limit(self, model, prompts):
        output = model.generate(
            **prompts,
            max_new_tokens=8,
            mars_threshold=50,
            mars_metric="entropy",
            eos_token_id=None,
            return_dict_in_generate=True,
        )
        assert output.acceptance_lengths == [[4, 4]] * 3

    @pytest.mark.parametrize("metric", ["probability", "margin"])
    def test_one_is_the_plain_path(self, model, prompts, metric):
        output = model.generate(
            **prompts, max_new_tokens=8, mars_threshold=1, mars_metric=metric, return_dict_in_generate=True
        )
        assert output.tokens_per_forward == 1.0


class TestGenerationConfig:
    def test_arguments_may_come_with_the_configuration(self, model, prompts):
        config = GenerationConfig(max_new_tokens=NEW_TOKENS, mars_threshold=0.2, mars_block_size=2)
        config.return_dict_in_generate = True
        output = model.generate(**prompts, generation_config=config)
        expected = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.2,
            mars_block_size=2,
            return_dict_in_generate=True,
        )
        assert output.acceptance_lengths == expected.acceptance_lengths
        assert output.sequences.tolist() == expected.sequences.tolist()

    def test_an_argument_wins(self, model, prompts):
        config = GenerationConfig(max_new_tokens=8, mars_threshold=0.9, eos_token_id=None, pad_token_id=PAD)
        config.return_dict_in_generate = True
        output = model.generate(**prompts, generation_config=config, mars_threshold=0.0)
        assert output.acceptance_lengths == [[4, 4]] * 3

    def test_mistakes_in_it_are_named_too(self, model, prompts):
        with pytest.raises(ValueError, match="did you mean `mars_threshold`"):
            model.generate(**prompts, generation_config=GenerationConfig(max_new_tokens=4, mars_treshold=0.9))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mars_threshold": 1.5}, ValueError, "mars_threshold"),
        ({"mars_threshold": -0.1}, ValueError, "mars_threshold"),
        ({"mars_threshold": float("nan")}, ValueError, "mars_threshold"),
        ({"mars_threshold": "0.9"}, TypeError, "mars_threshold"),
        ({"mars_threshold": True}, TypeError, "mars_threshold"),
        ({"mars_threshold": [0.9, 0.9, 0.9]}, TypeError, "mars_threshold"),
        ({"mars_threshold": torch.tensor([0.5, 0.5])}, ValueError, "mars_threshold"),
        ({"mars_threshold": torch.tensor([0.5, 0.5, 1.5])}, ValueError, "mars_threshold"),
        ({"mars_threshold": torch.tensor([[0.5]])}, ValueError, "mars_threshold"),
        ({"mars_threshold": torch.tensor([0.5, float("nan"), 0.5])}, ValueError, "mars_threshold"),
        ({"mars_threshold": lambda: 2.0}, ValueError, "mars_threshold"),
        ({"mars_threshold": lambda: None}, TypeError, "mars_threshold"),
        ({"mars_threshold": -1, "mars_metric": "entropy"}, ValueError, "mars_threshold"),
        ({"mars_threshold": 0.9, "mars_block_size": 0}, ValueError, "mars_block_size"),
        ({"mars_threshold": 0.9, "mars_block_size": 2.0}, TypeError, "mars_block_size"),
        ({"mars_threshold": 0.9, "mars_verify": 1}, TypeError, "mars_verify"),
        ({"mars_threshold": 0.9, "mars_metric": "certainty"}, ValueError, "mars_metric"),
        ({"mars_block_size": 4}, ValueError, "mars_threshold"),
        ({"mars_metric": "margin", "mars_verify": True}, ValueError, "mars_threshold"),
        ({"mars_treshold": 0.9}, ValueError, "did you mean `mars_threshold`"),
        ({"mars_temperature": 0.9}, ValueError, "mars_temperature"),
    ],
)
def test_mistakes_are_named(model, prompts, arguments, error, message):
    with pytest.raises(error, match=message):
        model.generate(**prompts, max_new_tokens=4, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mars_threshold": torch.ones(2)},
        {"mars_threshold": torch.ones(0)},
        {"mars_threshold": lambda: "x", "mars_block_size": 1},
    ],
)
def test_mistakes_are_named_on_the_plain_path_too(model, prompts, arguments):
    with pytest.raises((TypeError, ValueError), match="mars_threshold"):
        model.generate(**prompts, max_new_tokens=4, **arguments)


def test_verify_switched_off_alone_is_plain_generation(model, prompts):
    output = model.generate(**prompts, max_new_tokens=8, mars_verify=False)
    assert output.tolist() == GenerationMixin.generate(model, **prompts, max_new_tokens=8).tolist()


def test_integers_of_numpy_are_integers(model, prompts):
    output = model.generate(
        **prompts,
        max_new_tokens=6,
        mars_threshold=np.float32(0.0),
        mars_block_size=np.int64(3),
        eos_token_id=None,
        return_dict_in_generate=True,
    )
    assert output.acceptance_lengths == [[3, 3]] * 3


def test_a_model_without_an_entry_is_an_error(model, prompts):
    model = tiny_model()
    del model.config.mars
    with pytest.raises(ValueError, match="config.mars"):
        model.generate(**prompts, max_new_tokens=4, mars_threshold=0.5)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha"),
        ({"dola_layers": "low"}, "dola_layers"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"use_mtp": True}, "use_mtp"),
        ({"assistant_early_exit": 1}, "assistant_early_exit"),
        ({"force_words_ids": [[3]]}, "force_words_ids"),
        ({"token_healing": True}, "token_healing"),
        ({"output_hidden_states": True}, "output_hidden_states"),
        ({"output_attentions": True}, "output_attentions"),
        ({"cache_implementation": "quantized"}, "cache_implementation"),
        ({"custom_generate": "somewhere/else"}, "custom_generate"),
    ],
)
@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_other_strategies_are_refused_by_name(model, prompts, arguments, name, threshold):
    with pytest.raises(ValueError, match=name):
        model.generate(**prompts, max_new_tokens=4, mars_threshold=threshold, **arguments)


def test_an_assistant_model_is_refused_by_name(model, prompts):
    with pytest.raises(ValueError, match="assistant_model"):
        model.generate(**prompts, max_new_tokens=4, mars_threshold=0.5, assistant_model=model)


def test_several_end_of_sequence_ids_in_a_configuration(model, prompts):
    config = GenerationConfig(max_new_tokens=NEW_TOKENS, eos_token_id=[EOS, 22], pad_token_id=PAD)
    output = model.generate(**prompts, generation_config=config, mars_threshold=0.4)
    for row in output[:, 9:].tolist():
        if 22 in row:
            assert set(row[row.index(22) + 1 :]) <= {PAD}


def test_a_threshold_function_need_not_be_hashable():
    @dataclasses.dataclass
    class Knob:
        value: float

        def __call__(self):
            return self.value

    model = tiny_model()
    prompt = torch.tensor([[5, 6, 7]])
    expected = model.generate(prompt, max_new_tokens=12, mars_threshold=0.4)
    assert torch.equal(model.generate(prompt, max_new_tokens=12, mars_threshold=Knob(0.4)), expected)
