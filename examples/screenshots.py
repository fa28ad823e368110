"""
Screenshots of the demo with a real answer: light, dark, and at the width of a phone.

```bash
python examples/screenshots.py runs/quickstart/checkpoint
```

Needs `pip install -e ".[demo]" playwright`, in a clone of the repository, and chromium.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from hf_mars.demo import build_app, load_model


QUESTION = "Ana has 3 bags with 7 apples in each. Ana gives 5 apples to Ben. How many apples does Ana have left?"
VIEWS = {
    "light": ("light", {"width": 1280, "height": 860}),
    "dark": ("dark", {"width": 1280, "height": 860}),
    "phone": ("light", {"width": 390, "height": 844}),
}


def ask(page: Page, question: str) -> None:
    page.wait_for_selector("#message textarea")
    page.check("#compare input")
    page.fill("#threshold input[type=number]", "0.7")
    page.press("#threshold input[type=number]", "Enter")
    page.fill("#message textarea", question)
    page.click("#send")
    page.wait_for_function("document.querySelector('#plain-counters')?.innerText.includes('same tokens')")
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", help="default: as for `hf-mars demo`")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    app = build_app(*load_model(options.checkpoint))
    _, url, _ = app.launch(prevent_thread_lock=True, quiet=True)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (theme, viewport) in VIEWS.items():
            page = browser.new_page(viewport=viewport, device_scale_factor=2 if name == "phone" else 1)
            page.set_default_timeout(120_000)
            page.goto(f"{url}?__theme={theme}")
            ask(page, QUESTION)
            page.screenshot(path=options.output_dir / f"demo_{name}.png", full_page=name == "phone")
            page.close()
        browser.close()
    app.close()


if __name__ == "__main__":
    main()
