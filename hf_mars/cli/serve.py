"""`hf-mars serve`: OpenAI's API over one checkpoint."""

from collections.abc import Iterator
from dataclasses import fields, replace

from ..extras import install_command
from ..loading import QUICKSTART_CHECKPOINT
from .addresses import check_address
from .checkpoints import load_checkpoint
from .config_file import ConfigParser
from .errors import one_line_errors


__all__ = ["main"]

BOOLEANS = ("true", "yes", "t", "y", "1", "false", "no", "f", "n", "0")


def main(arguments: list[str]) -> None:
    """Parse the options of [`ServerConfig`], load the checkpoint, and serve it until SIGTERM."""
    with one_line_errors("hf-mars serve"):
        try:
            from ..serving.config import ServerConfig
            from ..serving.openai.request_log import open_request_log
            from ..serving.server import DrainingServer, build_server
        except ImportError as error:
            raise ImportError(f"{error}. Install it with `{install_command('serve')}`.") from error
        parser = ConfigParser(
            ServerConfig,
            prog="hf-mars serve",
            usage="%(prog)s [CHECKPOINT] [--config FILE] [options]",
            description="Serve a checkpoint with OpenAI's API. A YAML file of `--config` may hold the options too.",
        )
        parser.add_argument("path", nargs="?", metavar="CHECKPOINT", help="the same as --checkpoint")
        parser.set_defaults_with_config(checkpoint=QUICKSTART_CHECKPOINT)
        flags = {f"--{field.name}" for field in fields(ServerConfig) if field.type in (bool, "bool")}
        config, positional = parser.parse_args_and_config(list(complete_flags(arguments, flags)))
        if positional.path is not None:
            config = replace(config, checkpoint=positional.path)
        check_address(config.host, config.port)
        if config.request_log is not None:
            open_request_log(config.request_log)
        model, tokenizer = load_checkpoint(config.checkpoint, config.dtype, config.device)
        scheduler = config.make_scheduler(model, config.max_queue)
    DrainingServer(build_server(scheduler, tokenizer, config), scheduler, config).run()


def complete_flags(arguments: list[str], flags: set[str]) -> Iterator[str]:
    """The arguments, with a value for each flag that has none: else it would take the checkpoint after it for one."""
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        is_alone = argument in flags and following.lower() not in BOOLEANS
        yield f"{argument}=true" if is_alone else argument
