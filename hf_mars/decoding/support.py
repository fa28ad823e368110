"""What multi-token decoding does not do, refused by name."""

from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerationMode, MaxLengthCriteria


__all__ = ["check_supported"]


def check_supported(
    generation_config: GenerationConfig,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    batch_size: int,
    has_streamer: bool,
) -> None:
    """
    Check what `generate` has prepared for a call with `mars_threshold`.

    Raises:
        `ValueError`: If something would change the result that multi-token decoding leaves out; the message names it.
    """
    mode = generation_config.get_generation_mode()
    if mode != GenerationMode.GREEDY_SEARCH:
        raise ValueError(
            f"`mars_threshold` works with greedy decoding only so far, got {mode.value}: set `do_sample=False`."
        )
    if generation_config.num_return_sequences != 1:
        raise ValueError("`num_return_sequences` must be 1 with `mars_threshold`.")
    for processor in logits_processor:
        raise ValueError(f"`mars_threshold` does not work with logits processors yet, got {type(processor).__name__}.")
    for criterion in stopping_criteria:
        if not isinstance(criterion, EosTokenCriteria | MaxLengthCriteria):
            raise ValueError(f"`mars_threshold` does not work with {type(criterion).__name__} yet.")
    for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(generation_config, name):
            raise ValueError(f"`{name}=True` is not available with `mars_threshold` yet.")
    if generation_config.cache_implementation is not None:
        raise ValueError("`cache_implementation` has no meaning with `mars_threshold`, which brings its own cache.")
    if generation_config.use_cache is False:
        raise ValueError("`use_cache=False` is not available with `mars_threshold` yet.")
    if has_streamer and batch_size > 1:
        raise ValueError("`streamer` needs a batch of one: rows advance at their own pace.")
