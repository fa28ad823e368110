"""`hf-mars serve`: OpenAI's API over one checkpoint."""

from dataclasses import replace

from trl import TrlParser
from yaml import YAMLError

from .checkpoints import QUICKSTART_CHECKPOINT, load_checkpoint


__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Parse the options of [`ServerConfig`], load the checkpoint, and serve it until SIGTERM."""
    try:
        from ..serving.config import ServerConfig
        from ..serving.openai.request_log import open_request_log
        from ..serving.server import DrainingServer, build_server
    except ImportError as error:
        raise SystemExit(f"hf-mars serve: error: {error}. Install it with `pip install hf-mars[serve]`.") from error
    parser = TrlParser(
        ServerConfig,
        prog="hf-mars serve",
        usage="%(prog)s [CHECKPOINT] [--config FILE] [options]",
        description="Serve a checkpoint with OpenAI's API. A YAML file of `--config` may hold the options too.",
    )
    parser.add_argument("path", nargs="?", metavar="CHECKPOINT", help="the same as --checkpoint")
    parser.set_defaults_with_config(checkpoint=QUICKSTART_CHECKPOINT)
    try:
        config, positional = parser.parse_args_and_config(arguments)
        if positional.path is not None:
            config = replace(config, checkpoint=positional.path)
        if config.request_log is not None:
            open_request_log(config.request_log)
        model, tokenizer = load_checkpoint(config.checkpoint, config.dtype, config.device)
        scheduler = config.make_scheduler(model, config.max_queue)
    except (OSError, ValueError, YAMLError) as error:
        raise SystemExit(f"hf-mars serve: error: {error}") from error
    DrainingServer(build_server(scheduler, tokenizer, config), scheduler, config).run()
