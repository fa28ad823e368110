"""Where a command listens."""

import socket

from ..one_line import one_line


__all__ = ["check_address"]


def check_address(host: str, port: int | None = None) -> None:
    """
    Check that a command can listen there, before it loads a model.

    Args:
        host (`str`): Name or number of an address of this machine.
        port (`int`, *optional*): The port; without one any will do.

    Raises:
        `ValueError`: If the address is none of this machine, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, after one that has ended
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        place = f"`--host` {host!r}" if port is None else f"`--host` {host!r} with `--port` {port}"
        raise ValueError(f"{place} is nowhere to listen: {one_line(error)}") from error
