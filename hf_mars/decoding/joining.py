"""Rows that join a batch, or leave it, while the others decode."""

from collections.abc import Collection

import torch

from .row_options import BatchOptions
from .strategy import MARSDecoder


__all__ = ["join", "leave"]


def join(batch: MARSDecoder, newcomers: MARSDecoder) -> list[int]:
    """
    Let the rows of another decoder take part in the next step of a batch. What a row generates does not depend on the
    rows around it, and nothing is copied but the newcomers.

    Args:
        batch ([`MARSDecoder`]): The batch; it goes on with all rows.
        newcomers ([`MARSDecoder`]):
            The other one, not to be used any more. What of its context is not in its cache yet makes the next forward
            wide for all rows: see [`MARSDecoder.prefill`].

    Returns:
        `list[int]`: The ids of the newcomers in the batch, which its steps tell.

    Raises:
        `ValueError`: If one of them uses what only a batch of its own can: a static cache, a cache of an earlier turn,
            embeddings, `use_cache=False`, stopping criteria that look at the text, or records of scores.
    """
    for decoder in (batch, newcomers):
        if decoder.rows_stay or not decoder.use_cache or decoder.slot_offset or decoder.stopping.others:
            raise ValueError(
                "A row can join another batch only with a dynamic cache of its own, a prompt of tokens, and no "
                "stopping criteria but the length and the end-of-sequence tokens."
            )
    if batch.is_done:
        raise ValueError("The batch is done: go on with the newcomers alone.")
    newcomers.is_first = batch.is_first = False
    batch.cache.join(newcomers.cache)
    batch.options = BatchOptions([*batch.options.rows, *newcomers.options.rows], batch.sequences.device)
    num_rows = len(newcomers.host_ids)
    taken = set(batch.host_ids.tolist())
    free = [row for row in range(len(batch.sequences) + num_rows) if row not in taken][:num_rows]
    ids = torch.tensor(free)
    missing = max(max(free) + 1 - len(batch.sequences), 0)
    # A run is written before it is cut, as wide as the largest block.
    longest = max(row.max_length for row in batch.options.rows) + batch.options.largest_block
    growth = max(longest - batch.sequences.shape[1], 0)
    if missing or growth:
        batch.sequences = torch.nn.functional.pad(batch.sequences, (0, growth, 0, missing), value=batch.pad_token_id)
    batch.sequences[ids] = batch.pad_token_id  # nothing is left of a row that had this place before
    width = min(newcomers.sequences.shape[1], batch.sequences.shape[1])
    batch.sequences[ids, :width] = newcomers.sequences[newcomers.host_ids, :width]
    newcomers.rows.ids = ids.to(batch.sequences.device)
    batch.rows = batch.rows.join(newcomers.rows)
    batch.host_ids = torch.cat([batch.host_ids, ids])
    batch.host_state = torch.cat([batch.host_state, newcomers.host_state])
    batch.has_padding |= newcomers.has_padding
    batch.summarize(torch.ones(len(batch.host_ids), dtype=torch.bool))
    return free


def leave(batch: MARSDecoder, ids: Collection[int]) -> None:
    """
    Take rows out of a batch before they are done.

    Args:
        batch ([`MARSDecoder`]): The batch; it is done if none is left.
        ids (`Collection[int]`): Ids of the rows.

    Raises:
        `ValueError`: If the rows of the batch cannot leave: with a static cache, or one of an earlier turn.
    """
    if batch.rows_stay:
        raise ValueError("Rows cannot leave a batch with a static cache or the cache of an earlier turn.")
    batch.keep(~torch.isin(batch.host_ids, torch.tensor(sorted(ids))))
