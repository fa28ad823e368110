"""Which vLLM this was tested with."""

__all__ = ["TESTED_VERSIONS", "check_version"]

TESTED_VERSIONS = ("0.32",)


def check_version(version: str | None = None) -> None:
    """
    The plugin point is experimental and may change with any minor version, so another one is refused at start.

    Args:
        version (`str`, *optional*): Defaults to the installed vLLM's.

    Raises:
        `RuntimeError`: If it was not tested with this version.
    """
    if version is None:
        import vllm  # here, so that all but this and `RequestCheck` can be imported, and tested, without it

        version = vllm.__version__
    if ".".join(version.split(".")[:2]) not in TESTED_VERSIONS:
        tested = " and ".join(f"{each}.x" for each in TESTED_VERSIONS)
        raise RuntimeError(
            f"hf-mars-vllm was tested with vLLM {tested}, but this is vLLM {version}. Install a tested one, or try it "
            'with `--additional-config \'{"mars": {"allow_untested_version": true}}\'`.'
        )
