"""How an answer looks: escaped text, one colour for each length of a run."""

import html

from .answer import Answer, Piece


__all__ = [
    "CSS",
    "first_difference",
    "legend",
    "render_answer",
    "render_conversation",
    "render_counters",
    "render_message",
    "render_problem",
]

LONGEST = 8  # runs of this many tokens and more share a colour

CSS = """
.mars-chat { display: flex; flex-direction: column; gap: .75rem; min-height: 8rem; }
.mars-message { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.75; padding: .6rem .9rem;
  border-radius: .8rem; border: 1px solid var(--border-color-primary); color: var(--body-text-color); }
.mars-user { align-self: flex-end; max-width: 85%; background: var(--background-fill-secondary); }
.mars-answer { background: var(--background-fill-primary); }
.mars-problem { border-color: #d97706; background: color-mix(in srgb, #f59e0b 14%, transparent); }
.mars-run { border-radius: .25rem; padding: .1rem 0; box-decoration-break: clone; -webkit-box-decoration-break: clone;
  background: color-mix(in srgb, var(--mars-color) 30%, transparent); box-shadow: inset 0 -2px 0 var(--mars-color); }
.dark .mars-run { background: color-mix(in srgb, var(--mars-color) 38%, transparent); }
.mars-run-1 { --mars-color: #9ca3af; }
.mars-run-2 { --mars-color: #60a5fa; } .mars-run-3 { --mars-color: #2dd4bf; } .mars-run-4 { --mars-color: #84cc16; }
.mars-run-5 { --mars-color: #eab308; } .mars-run-6 { --mars-color: #f97316; } .mars-run-7 { --mars-color: #f43f5e; }
.mars-run-8 { --mars-color: #d946ef; }
.mars-differs { outline: 2px solid #dc2626; border-radius: .25rem; }
.mars-counters { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .9rem; }
.mars-counters, .mars-legend { color: var(--body-text-color-subdued); }
.mars-counters b { color: var(--body-text-color); font-variant-numeric: tabular-nums; }
.mars-legend { display: flex; flex-wrap: wrap; gap: .3rem .8rem; font-size: .85rem; }
.mars-legend .mars-run { padding: .1rem .5rem; color: var(--body-text-color); }
"""


def run_class(length: int) -> str:
    return f"mars-run mars-run-{min(length, LONGEST)}"


def legend(block_size: int) -> str:
    """One sample for each length that a run can have."""
    samples = [
        f'<span class="{run_class(length)}">{length}{"+" if length == LONGEST < block_size else ""}</span>'
        for length in range(1, min(block_size, LONGEST) + 1)
    ]
    return f'<div class="mars-legend">tokens of one forward pass: {" ".join(samples)}</div>'


def render_conversation(turns: list[str]) -> str:
    """All turns, each rendered before."""
    return f'<div class="mars-chat">{"".join(turns)}</div>'


def render_message(text: str) -> str:
    """What the user wrote."""
    return f'<div class="mars-message mars-user">{html.escape(text)}</div>'


def render_problem(text: str) -> str:
    """Something the user has to know."""
    return f'<div class="mars-message mars-problem" role="alert">{html.escape(text)}</div>'


def render_answer(answer: Answer, differs_at: int | None = None) -> str:
    """
    An answer, one span a run.

    Args:
        answer ([`Answer`]): As far as it has come.
        differs_at (`int`, *optional*): Index of the first token that differs from another answer.
    """
    spans, position = [], 0
    for piece in answer.pieces:
        end = position + len(piece.token_ids)
        differs = differs_at is not None and position <= differs_at < end
        spans.append(render_piece(piece, differs))
        position = end
    return f'<div class="mars-message mars-answer">{"".join(spans)}</div>'


def render_piece(piece: Piece, differs: bool) -> str:
    count = len(piece.token_ids)
    facts = [f"{count} token{'s' if count > 1 else ''} in one forward pass"]
    if piece.confidences:
        facts.append("confidence " + ", ".join(f"{value:.2f}" for value in piece.confidences))
    if piece.threshold is not None:
        facts.append(f"threshold {piece.threshold:g}")
    if differs:
        facts.append("the first token that differs is here")
    title = html.escape("; ".join(facts), quote=True)
    classes = run_class(count) + (" mars-differs" if differs else "")
    return f'<span class="{classes}" data-tokens="{count}" title="{title}">{html.escape(piece.text)}</span>'


def render_counters(answer: Answer, note: str = "") -> str:
    """Live figures of an answer."""
    values = [
        (f"{answer.tokens_per_forward:.2f}", "tokens/forward"),
        (str(len(answer.pieces)), "forwards"),
        (str(len(answer.token_ids)), "tokens"),
        (f"{answer.tokens_per_second:.1f}", "tokens/s"),
        (f"{answer.seconds:.1f}", "s"),
    ]
    items = "".join(f"<span><b>{value}</b> {name}</span>" for value, name in values)
    return f'<div class="mars-counters">{items}<span>{html.escape(note)}</span></div>'


def first_difference(left: Answer, right: Answer) -> int | None:
    """Index of the first token in which two answers differ, as far as both have come."""
    pairs = zip(left.token_ids, right.token_ids, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), None)
