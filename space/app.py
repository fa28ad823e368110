"""The Space: everything is in the package."""

import gradio as gr

from hf_mars.demo import build_app, load_model


try:
    app = build_app(*load_model())
except OSError as error:
    with gr.Blocks() as app:
        gr.Markdown(f"### No checkpoint to show\n\n{error}")

if __name__ == "__main__":
    app.launch(show_error=True)
