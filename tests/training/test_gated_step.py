"""What the masks of a gated step see and say, against forwards of PEFT alone."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Gemma2Config, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen3Config

from hf_mars import MARSConfig
from hf_mars.training.gated import GatedStep
from hf_mars.training.gated_adapters import gated_config
from hf_mars.training.mask_columns import build_mask_columns, draw_tilings
from hf_mars.training.streams import IGNORED, build_streams
from tests.tiny import EOS, MASK, PAD, tiny_config, tiny_model


WINDOW = 5
CONFIGS = {
    "llama": tiny_config(LlamaConfig),
    "tied": tiny_config(LlamaConfig, tie_word_embeddings=True),
    "qwen3": tiny_config(Qwen3Config, head_dim=8),
    "mistral-window": tiny_config(MistralConfig, sliding_window=WINDOW),
    "gemma2": tiny_config(Gemma2Config, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8),
    "gemma3": tiny_config(Gemma3TextConfig, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8),
    "gpt2": GPT2Config(
        vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, eos_token_id=EOS, pad_token_id=PAD
    ),
}


def gated_model(config=None, seed=0):
    """A random model in float64 with a random gated adapter."""
    attention = "eager" if isinstance(config, Gemma2Config) else "sdpa"
    model = tiny_model(config, similarity=0.5, attn_implementation=attention)
    peft_config = gated_config(LoraConfig(r=4, target_modules="all-linear"), model, MASK)
    model = get_peft_model(model, peft_config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
    return model.eval()


def gated_step(model, tmp_path, **overrides):
    args = MARSConfig(output_dir=str(tmp_path), mask_gated=True, bf16=False, **{"mask_decay": 1.0, **overrides})
    return GatedStep(model, args)


def ragged_batch():
    """Right-padded rows with one response, two responses, and none."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(2, MASK, (3, 17), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    labels = torch.full_like(input_ids, IGNORED)
    labels[0, 4:17] = input_ids[0, 4:17]
    labels[1, 2:7] = input_ids[1, 2:7]
    labels[1, 9:13] = input_ids[1, 9:13]
    for row, length in enumerate([17, 13, 9]):
        input_ids[row, length:] = PAD
        attention_mask[row, length:] = 0
    return {"input_ids": input_ids, "labels": labels, "attention_mask": attention_mask}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.integration
def test_masks_say_what_a_forward_of_prefix_and_masks_says(tmp_path, name):
    model, batch = gated_model(CONFIGS[name]), ragged_batch()
    base_model = model.get_base_model()
    mask_logits = gated_step(model, tmp_path).mask_logits(model, base_model, batch)
    compared = 0
    for phase in range(4):
        streams = build_streams(**batch, mask_token_id=MASK, block_size=4, phase=phase)
        columns, logits = mask_logits(streams)
        row, column = columns.is_real.nonzero(as_tuple=True)
        for index, (r, c) in enumerate(zip(row.tolist(), column.tolist(), strict=True)):
            offset, source = columns.offsets[r, c].item(), columns.sources[r, c].item()
            prefix = batch["input_ids"][r, : source - offset]
            window = torch.cat([prefix, torch.full((offset + 1,), MASK)])[None]
            with torch.no_grad():
                expected = model(window, alora_offsets=[offset + 1]).logits[0, -1]
            expected[MASK] = torch.finfo(expected.dtype).min
            # Gemma 2 attends eagerly, which takes its softmax in float32.
            torch.testing.assert_close(logits[index], expected.log_softmax(-1), atol=1e-5, rtol=1e-5)
            compared += 1
    assert compared > 60


def test_documents_of_a_packed_row_never_see_each_other(tmp_path):
    model = gated_model()
    generator = torch.Generator().manual_seed(1)
    documents = [torch.randint(2, MASK, (length,), generator=generator) for length in (7, 9)]
    packed = torch.cat(documents)[None]
    positions = torch.cat([torch.arange(len(document)) for document in documents])[None]
    labels = packed.clone()
    labels[positions < 3] = IGNORED
    step = gated_step(model, tmp_path)

    def scores(**inputs):
        logits = step.mask_logits(model, model.get_base_model(), inputs)
        return logits(build_streams(**inputs, mask_token_id=MASK, block_size=4, phase=1))[1]

    together = scores(input_ids=packed, labels=labels, position_ids=positions)
    alone = [
        scores(input_ids=document[None], labels=labels[None, 0, part])
        for document, part in zip(documents, (slice(0, 7), slice(7, 16)), strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone))


def test_tilings_differ_and_all_of_them_start_a_block_everywhere():
    inputs = ragged_batch()
    for num_phases in (1, 2, 4):
        tilings = draw_tilings(inputs, MASK, block_size=4, num_phases=num_phases)
        columns = build_mask_columns(tilings, 17, block_size=4, mask_token_id=MASK)
        starts = (columns.sources - columns.offsets)[columns.offsets == 0].tolist()
        first_tokens = 3  # of three responses: where a tile begins before them, so does a block of every tiling
        assert columns.offsets.max() == 2
        assert len(starts) <= first_tokens * num_phases + num_phases * (13 + 5 + 4) / 4
    rows, positions = columns.is_real.nonzero(as_tuple=True)
    begun = {(r, columns.sources[r, c].item()) for r, c in zip(rows.tolist(), positions.tolist(), strict=True)}
    supervised = (inputs["labels"][:, :-1] != IGNORED) & (inputs["labels"][:, 1:] != IGNORED)
    assert begun == {tuple(place) for place in supervised.nonzero().tolist()}


def test_blocks_that_end_early_leave_the_other_masks_what_they_are():
    torch.manual_seed(0)
    inputs = ragged_batch()
    inputs = {name: values.repeat(40, 1) for name, values in inputs.items()}
    tilings = draw_tilings(inputs, MASK, block_size=4, num_phases=4)
    whole, cut = (build_mask_columns(tilings, 17, 4, MASK, decay) for decay in (1.0, 0.5))
    counts = [[(columns.offsets == offset).sum().item() for offset in range(3)] for columns in (whole, cut)]
    for offset, share in enumerate((1.0, 0.5, 0.25)):
        assert counts[1][offset] == pytest.approx(share * counts[0][offset], rel=0.1)
    for row in range(len(cut.offsets)):
        offsets = cut.offsets[row][cut.is_real[row]].tolist()
        assert all(offset in (0, before + 1) for before, offset in zip([-1, *offsets], offsets, strict=False))


@pytest.mark.integration
def test_scores_and_gradient_are_those_of_the_masks_beside_the_model_itself(tmp_path):
    model, batch = gated_model(CONFIGS["tied"]).train(), ragged_batch()
    base_model = model.get_base_model()
    step = gated_step(model, tmp_path, mask_loss="kl", mask_phases=4)
    masks = step(model, base_model, batch)
    masks.weighted_losses("kl").sum().backward()
    step.finish()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert {name.split(".")[-1] for name in gradients} == {"weight", "default"}
    assert all("lora" in name or "trainable_tokens_delta" in name for name in gradients)

    model.zero_grad()
    losses = []
    tilings = draw_tilings(batch, MASK, block_size=4, num_phases=4)
    columns = build_mask_columns(tilings, 17, block_size=4, mask_token_id=MASK)
    for r, c in columns.is_real.nonzero().tolist():
        offset, source = columns.offsets[r, c].item(), columns.sources[r, c].item()
        tokens = batch["input_ids"][r, : source + 1]
        window = torch.cat([tokens[: source - offset], torch.full((offset + 1,), MASK)])[None]
        scores = torch.stack(
            [base_model(tokens[None]).logits[0, -1], model(window, alora_offsets=[offset + 1]).logits[0, -1]]
        )
        scores = scores.index_fill(1, torch.tensor([MASK]), torch.finfo(scores.dtype).min)
        log_p, log_q = scores.log_softmax(-1)
        losses.append((log_p.exp().detach() * (log_p.detach() - log_q)).sum())
    torch.stack(losses).sum().backward()
    torch.testing.assert_close(masks.scores.losses.detach(), torch.stack(losses).detach())
    for name, parameter in model.named_parameters():
        if name in gradients:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-4, rtol=1e-5)  # in float32


def test_expected_tokens_are_those_of_a_walk_over_whole_blocks(tmp_path):
    model, batch = gated_model(), ragged_batch()
    masks = gated_step(model, tmp_path)(model, model.get_base_model(), batch)
    runs = {}
    for block, offset, agrees, overlap in zip(
        masks.blocks.tolist(), masks.offsets.tolist(), masks.scores.agrees, masks.scores.overlaps, strict=True
    ):
        runs.setdefault(block, [None] * 3)[offset] = (agrees.item(), overlap.item())
    verified, sampled, count = 0.0, 0.0, 0
    for run in runs.values():
        if None not in run:
            count += 1
            verified += 1 + sum(all(agrees for agrees, _ in run[: end + 1]) for end in range(3))
            sampled += 1 + sum(torch.tensor([overlap for _, overlap in run[: end + 1]]).prod() for end in range(3))
    assert masks.sums()[-1].tolist() == pytest.approx([verified, float(sampled), 0, count], rel=1e-5)
    assert masks.sums()[:-1, 3].sum() == len(masks.offsets)


def test_a_batch_without_responses_gives_a_finite_zero(tmp_path):
    model, batch = gated_model().train(), ragged_batch()
    batch["labels"].fill_(IGNORED)
    step = gated_step(model, tmp_path)
    masks = step(model, model.get_base_model(), batch)
    loss = masks.weighted_losses("lk").sum()
    loss.backward()
    step.finish()
    assert loss.item() == 0 and masks.sums()[:, -1].sum() == 0
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)
