"""The program behind three rows of docs/lab.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pybloom_live", reason="Python: pybloom_live, for the rows of the lab")

PROGRAM = Path(__file__).resolve().parents[1] / "benches/guide.py"


@pytest.mark.skipif(sys.platform != "linux", reason="Python: /proc, for the memory of a mapping")
def test_the_rows_of_the_lab():
    environment = {**os.environ, "CAPACITY": "5000"}
    done = subprocess.run([sys.executable, PROGRAM, "1"], stdout=subprocess.PIPE, env=environment, check=True, text=True)
    rates = re.findall(r"FPR ([0-9.]+)%", done.stdout)
    assert len(rates) == 4 and all(float(rate) < 0.5 for rate in rates)
    assert "3 of 3 processes give the 20,000 answers of the filter" in done.stdout
    assert re.search(r", 0 KiB of it not shared", done.stdout)
