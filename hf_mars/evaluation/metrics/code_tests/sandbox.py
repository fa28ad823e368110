"""
Running code that a model wrote: in a process of its own, with limits on time and memory, in an empty directory,
without a network. It keeps accidents away, not a determined attacker.
"""

import secrets
import subprocess
import sys
import tempfile


__all__ = ["run_program"]

# Runs first in the new process. A namespace of its own has no network; where the system does not allow one, sockets
# are taken away in Python.
PREAMBLE = """
import ctypes, os, resource, sys
unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
if unshare is not None and unshare(CLONE_NEWNET) != 0:
    unshare(CLONE_NEWUSER | CLONE_NEWNET)
memory, seconds, verdict = map(int, sys.argv[1:])
try:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
except (OSError, ValueError):
    pass  # macOS has no such limit
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
import socket
def refuse(*args, **kwargs):
    raise PermissionError("no network here")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
sys.argv = ["answer.py"]
secret, source = sys.stdin.readline(), sys.stdin.read()
for name in ("system", "popen", "fork", "execv", "execve", "kill"):
    setattr(os, name, refuse)
sys.stdin = open(os.devnull)
exec(compile(source, "answer.py", "exec"), {"__name__": "answer"})
sys.stdout.flush()
os.write(verdict, secret.encode())
"""


def run_program(source: str, timeout: float = 10.0, memory: int = 1_000_000_000) -> bool:
    """
    Run a program to its end.

    Args:
        source (`str`): Python code, which raises if something is wrong.
        timeout (`float`, *optional*, defaults to 10.0): Seconds that it may take.
        memory (`int`, *optional*, defaults to 1_000_000_000): Bytes of address space that it may use.

    Returns:
        `bool`: Whether it came to its end without an exception; leaving early does not count.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as verdict:
        # The verdict is a number that the program does not know, through a file descriptor of its own.
        secret = f"{secrets.token_hex()}\n"
        limits = [memory, int(timeout) + 1, verdict.fileno()]
        try:
            subprocess.run(
                [sys.executable, "-I", "-c", PREAMBLE, *map(str, limits)],
                input=secret + source,
                text=True,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
                pass_fds=[verdict.fileno()],
            )
        except subprocess.TimeoutExpired:
            return False
        verdict.seek(0)
        return verdict.read() == secret.encode()
