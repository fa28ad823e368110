"""The page."""

from typing import Any

import gradio as gr
from transformers import PreTrainedTokenizerBase

from ..evaluation import format_table, load_evaluation
from ..exactness import explain_inexactness
from ..generative_model import GenerativeModel
from .events import MAX_NEW_TOKENS, METRICS, DemoEvents
from .page import CSS, legend, render_conversation


__all__ = ["build_app"]

EXAMPLES = [
    "Ana has 3 bags with 7 apples in each. Ana gives 5 apples to Ben. How many apples does Ana have left?",
    "Milo has 6 packs with 8 stickers in each. Milo gets 9 stickers from Lena. How many stickers does Milo have now?",
    "Write a short paragraph about lighthouses.",
]
INTRODUCTION = """# Several tokens a forward pass
One checkpoint, fine-tuned with [MARS](https://arxiv.org/abs/2604.07023). Each colour is one forward pass. Move the
threshold **while it writes**: the rest of the answer follows."""


def build_app(model: GenerativeModel, tokenizer: PreTrainedTokenizerBase, source: str = "") -> gr.Blocks:
    """
    The page of a model.

    Args:
        model ([`PreTrainedModel`]): A MARS model, on the device where it runs.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer, with a chat template.
        source (`str`, *optional*): Where it came from; its measured sweep is shown if there is one.

    Returns:
        `gradio.Blocks`: Call its `launch`.
    """
    try:
        evaluation = load_evaluation(source) if source else None
    except (OSError, ValueError):
        evaluation = None
    events = DemoEvents(model, tokenizer, evaluation)
    block_size = model.config.mars["block_size"]
    kept = "keep plain decoding's tokens" + (", near ties apart" if explain_inexactness(model) else "")
    turned = "of answers that are not lossless; a lossless one drafts as far as it pays"
    with gr.Blocks(title="Several tokens a forward pass", fill_width=False) as app:
        gr.HTML(f"<style>{CSS}</style>", padding=False)
        gr.Markdown(INTRODUCTION)
        history = gr.State([])
        with gr.Tab("Generate"), gr.Row():
            with gr.Column(scale=4, min_width=320):
                with gr.Row():
                    with gr.Column(min_width=300):
                        chat = gr.HTML(render_conversation([]), elem_id="conversation", padding=False)
                        counters = gr.HTML(elem_id="counters", padding=False)
                    with gr.Column(min_width=300, visible=False) as plain_column:
                        gr.Markdown("Plain autoregressive decoding")
                        plain = gr.HTML(elem_id="plain", padding=False)
                        plain_counters = gr.HTML(elem_id="plain-counters", padding=False)
                gr.HTML(legend(block_size), elem_id="legend", padding=False)
                threshold = gr.Slider(
                    0.5, 1.0, value=0.9, step=0.01, label="Threshold", info=turned, elem_id="threshold"
                )
                message = gr.Textbox(label="Message", placeholder="Ask something", lines=2, elem_id="message")
                with gr.Row():
                    send = gr.Button("Send", variant="primary", elem_id="send", min_width=80)
                    stop = gr.Button("Stop", elem_id="stop", min_width=80)
                    clear = gr.Button("Clear", elem_id="clear", min_width=80)
                gr.Examples(EXAMPLES, message)
            with gr.Column(scale=1, min_width=240):
                is_on = gr.Checkbox(True, label="Several tokens a forward", elem_id="on")
                lossless = gr.Checkbox(True, label="Lossless", info=kept, elem_id="lossless")
                compare = gr.Checkbox(False, label="Compare with plain decoding", elem_id="compare")
                with gr.Accordion("More", open=False):
                    size = gr.Slider(2, 2 * block_size, value=block_size, step=1, label="Block size", elem_id="size")
                    metric = gr.Radio(METRICS, value="probability", label="Confidence metric", elem_id="metric")
                    temperature = gr.Slider(0, 1.5, value=0, step=0.1, label="Temperature (0 is greedy)")
                    length = gr.Slider(16, MAX_NEW_TOKENS, value=256, step=16, label="Length, tokens")
        with gr.Tab("Measured") as measured:
            if evaluation is None:
                gr.Markdown(
                    "Nothing was measured on this checkpoint yet: `hf-mars bench` does, `hf-mars push` adds it."
                )
            picture = gr.Image(
                events.draw(0.9), label="Speed against quality", elem_id="frontier", visible=evaluation is not None
            )
            if evaluation is not None:
                gr.Markdown(format_table(evaluation.results, evaluation.environment.get("dtype")))

        inputs = [message, history, is_on, threshold, size, lossless, metric, temperature, length, compare]
        outputs = [message, history, chat, counters, plain, plain_counters]
        for event in (send.click, message.submit):
            event(
                events.respond,
                inputs,
                outputs,
                concurrency_limit=4,
                concurrency_id="generate",
                show_progress="hidden",
                api_visibility="private",
            )
        hidden: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        threshold.change(events.turn, [threshold, metric], **hidden)
        stop.click(events.stop, **hidden)
        clear.click(events.clear, outputs=outputs[1:], **hidden)
        compare.change(lambda shown: gr.Column(visible=shown), compare, plain_column, **hidden)
        measured.select(events.draw, threshold, picture, **hidden)
        gr.api(events.generate, api_name="generate", concurrency_limit=4, concurrency_id="generate")
    app.queue(max_size=32)
    return app
