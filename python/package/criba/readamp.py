"""The benchmark of disk reads, as a function."""

import json
import subprocess
import sys

from .errors import CribaError


def readamp(**options):
    """Runs `criba readamp` in a process of its own, and returns its JSON object as a dict.

    The options are those of the command, with _ for -: readamp(n=120_000, bits_per_key=10). True is an option without a
    value; None and False leave it out. The command `criba readamp --help` lists them, docs/readamp-json.md the fields.
    A check that does not hold is False under "checks". Raises ValueError for wrong options, CribaError if it fails.

    Cost: loads a temporary store of n small keys, and looks each up several times: some seconds for the default.
    """
    command = [sys.executable, "-m", "criba", "readamp", "--json", "--quiet"]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            command.append(option)
        elif value is not None and value is not False:
            command.append(f"{option}={value}")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    message = done.stderr.decode(errors="replace").strip()
    if done.returncode not in (0, 1):  # 1: a check does not hold, or Python failed
        raise (ValueError if done.returncode == 2 else CribaError)(message or f"exit code {done.returncode}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise CribaError(message or "no report") from None
