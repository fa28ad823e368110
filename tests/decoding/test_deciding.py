import torch
from transformers import LogitsProcessorList

from hf_mars.decoding import DecodingOptions, Mode, SamplingParams
from hf_mars.decoding.deciding import Decision, assemble, decide
from hf_mars.decoding.rows import Rows
from hf_mars.decoding.sampling import make_sampling_tensors
from hf_mars.decoding.stopping import cut


VOCAB, MASK = 10, 9


def params(mode, row=0, threshold=0.5, max_length=100, eos_token_ids=()):
    options = DecodingOptions(threshold, 4, mode, "probability", MASK)
    none = LogitsProcessorList()
    return SamplingParams(options, row, 2, max_length, frozenset(eos_token_ids), False, none, none)


def make_rows(drafts, num_drafts):
    ids = torch.arange(len(drafts))
    one = torch.ones_like(ids)
    return Rows(
        ids=ids,
        tokens=torch.tensor(drafts),
        num_pending=one,
        drafts=torch.tensor(drafts),
        num_drafts=torch.tensor(num_drafts),
        lengths=5 * one,
        position_offset=0 * one,
        is_real=torch.ones(len(ids), 5, dtype=torch.bool),
        is_active=one.bool(),
    )


def added(accepted):
    """The accepted tokens of each row."""
    return [row[:n] for row, n in zip(accepted.tokens.tolist(), accepted.lengths.tolist(), strict=True)]


def decide_at(threshold, logits, rows, sampling, groups=None):
    """Decide greedily, by default with one group of masks after the last draft."""
    groups = rows.num_drafts[:, None] if groups is None else torch.tensor(groups)
    thresholds = torch.full((len(logits), 1), threshold)
    return decide(logits, rows, sampling, thresholds, groups, torch.zeros(len(logits), 20, dtype=torch.long), None)


def logits_of(choices):
    """Sure of each of these tokens."""
    return 20 * torch.nn.functional.one_hot(torch.tensor(choices), VOCAB).float()


def test_verified_rows_add_the_drafts_that_hold_and_a_bonus_token():
    rows = make_rows([[1, 2], [4, 0]], [2, 2])
    sampling = make_sampling_tensors([params(Mode.VERIFY, row) for row in range(2)], torch.device("cpu"))
    # Of the first row all drafts hold; of the second one the second fails, and 7 replaces it.
    logits = logits_of([[1, 2, 3, 5, 6, 8], [4, 7, 3, 5, 6, 8]])
    logits[:, 5] = 0  # the last mask is not sure
    decision = decide(
        logits,
        rows,
        sampling,
        torch.full((2, 1), 0.5),
        rows.num_drafts[:, None],
        torch.zeros(2, 20, dtype=torch.long),
        None,
    )
    assert decision.num_accepted.tolist() == [2, 1]
    assert decision.bonus_token.tolist() == [[3], [7]]
    assert decision.num_confident.tolist() == [2, 0], "masks after a draft that failed are void"
    assert added(assemble(decision, rows, sampling)) == [[1, 2, 3], [4, 7]]


def test_the_group_after_the_drafts_that_hold_drafts_the_next_ones():
    rows = make_rows([[1, 2], [4, 0], [4, 0]], [2, 2, 2])
    sampling = make_sampling_tensors([params(Mode.VERIFY, row) for row in range(3)], torch.device("cpu"))
    # Both drafts hold, one, none; then two groups of two masks.
    logits = logits_of([[1, 2, 3, 5, 6, 7, 8], [4, 7, 3, 5, 6, 7, 8], [0, 7, 3, 5, 6, 7, 8]])
    decision = decide_at(0.5, logits, rows, sampling, groups=[[0, 2], [1, 2], [1, 2]])
    assert decision.num_accepted.tolist() == [2, 1, 0]
    assert decision.mask_tokens[:2].tolist() == [[7, 8], [5, 6]]
    assert decision.num_confident.tolist() == [2, 2, 0], "no group follows the last row's accepted tokens"


def test_lossy_rows_add_the_confident_masks_beside_verified_ones():
    rows = make_rows([[0, 0], [4, 1]], [0, 2])
    sampling = make_sampling_tensors([params(Mode.LOSSY, 0), params(Mode.VERIFY, 1)], torch.device("cpu"))
    logits = logits_of([[8, 8, 3, 5, 6, 8], [4, 1, 2, 5, 6, 8]])
    logits[0, 4] = 0
    decision = decide(
        logits,
        rows,
        sampling,
        torch.full((2, 1), 0.5),
        rows.num_drafts[:, None],
        torch.zeros(2, 20, dtype=torch.long),
        None,
    )
    assert decision.num_confident.tolist() == [1, 3]
    assert added(assemble(decision, rows, sampling)) == [[3, 5], [4, 1, 2]]


def test_rows_with_fewer_drafts_than_columns():
    rows = make_rows([[1, 2], [0, 0]], [1, 0])
    sampling = make_sampling_tensors([params(Mode.VERIFY, row) for row in range(2)], torch.device("cpu"))
    logits = logits_of([[8, 1, 3, 5], [8, 8, 4, 6]])  # right-aligned: drafts and bonus, then one mask
    decision = decide(
        logits,
        rows,
        sampling,
        torch.full((2, 1), 0.5),
        rows.num_drafts[:, None],
        torch.zeros(2, 20, dtype=torch.long),
        None,
    )
    assert added(assemble(decision, rows, sampling)) == [[1, 3], [4]]


def test_masks_beyond_the_budget_are_not_offered():
    rows = make_rows([[0], [0]], [0, 0])
    sampling = make_sampling_tensors(
        [params(Mode.LOSSY, 0, max_length=7), params(Mode.LOSSY, 1, max_length=6)], torch.device("cpu")
    )
    logits = logits_of([[8, 1, 2, 3, 4]] * 2)
    decision = decide(
        logits,
        rows,
        sampling,
        torch.full((2, 1), 0.5),
        rows.num_drafts[:, None],
        torch.zeros(2, 20, dtype=torch.long),
        None,
    )
    assert decision.num_offered.tolist() == decision.num_confident.tolist() == [1, 0]


def test_cut_ends_at_the_budget_and_at_the_first_end_of_sequence():
    rows = make_rows([[0]] * 3, [0] * 3)
    sampling = make_sampling_tensors([params(Mode.LOSSY, row) for row in range(3)], torch.device("cpu"))
    decision = Decision(
        num_accepted=torch.zeros(3, dtype=torch.long),
        bonus_token=torch.tensor([[1], [1], [1]]),
        mask_tokens=torch.tensor([[2, 3, 4]] * 3),
        num_offered=torch.tensor([3, 3, 3]),
        num_confident=torch.tensor([3, 3, 2]),
        confidences=torch.ones(3, 3),
        scores=torch.zeros(3, 2, VOCAB),
        mask_scores=torch.zeros(3, 3, VOCAB),
    )
    accepted, is_finished = cut(
        assemble(decision, rows, sampling), torch.tensor([2, 9, 9]), torch.tensor([[7, -1], [3, 4], [4, -1]])
    )
    assert accepted.lengths.tolist() == [2, 3, 3]
    assert is_finished.tolist() == [True, True, False]
