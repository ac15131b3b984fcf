"""The types in `__init__.pyi` are those of the module."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="Python: mypy, for the types")


def test_the_stubs_are_those_of_the_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "criba", "--ignore-missing-stub"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_program_is_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import criba, typing\n"
        "with criba.open('x') as db:\n"
        "    value: typing.Optional[bytes] = db.get('a')\n"
        "    db.put('a', 5)\n"
        "    for key, content in db.prefix('a'):\n"
        "        key.decode()\n"
        "    wrong: int = db.transact(lambda transaction: transaction.get('a'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], stdout=subprocess.PIPE, cwd=tmp_path, text=True, check=False
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["4", "7"], done.stdout
