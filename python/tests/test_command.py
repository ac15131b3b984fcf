import subprocess
import sys

import criba
import pytest


def test_readamp_is_a_dict_whose_checks_hold():
    report = criba.readamp(n=2000, only_lookups=True, bits_per_key=8)
    assert report["keys"] == 2000
    assert report["disk_reads"] < report["disk_reads_unfiltered"]
    assert report["bits_per_key"] == pytest.approx(8, abs=2)
    assert report["checks"] and False not in report["checks"].values()


def test_wrong_options_of_readamp():
    with pytest.raises(ValueError, match="--colour"):
        criba.readamp(colour="red")
    with pytest.raises(criba.CribaError, match="no such file|No such file"):
        criba.readamp(present="/nonexistent", absent="/nonexistent")


def test_the_command(tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "criba", *arguments], stdout=subprocess.PIPE, check=False)

    store = str(tmp_path / "store")
    assert run("put", store, "a", "1").returncode == 0
    assert run("get", store, "a").stdout == b"1\n"
    assert run("get", store, "b").returncode == 1
