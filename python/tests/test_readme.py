"""The programs in README.md run."""

import re
from pathlib import Path


PYTHON = Path(__file__).resolve().parents[1]


def test_the_programs_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", (PYTHON / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(programs) == 2
    names = {}
    for program in programs:
        exec(program, names)
    assert names["found"] == [1]
    printed = capsys.readouterr().out
    assert "a new URL\nb'' None\n" in printed and "absent; disk reads: 0" in printed


def test_the_names_in_the_readme_exist():
    import criba

    text = (PYTHON / "README.md").read_text()
    for name in re.findall(r"`criba\.(\w+)", text) + re.findall(r"`(\w+Error|\w+Filter)`", text):
        assert hasattr(criba, name), name
    for name in re.findall(r"`(?:db\.)?(get_many|put_many|insert_many_if_absent|ingest|transact|compare_and_swap)\b", text):
        assert hasattr(criba.Db, name), name
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (PYTHON / link).exists(), link


def test_each_method_has_a_docstring():
    import criba

    for name in criba.__all__:
        value = getattr(criba, name)
        assert value.__doc__, name
        methods = vars(value).items() if isinstance(value, type) else []
        for method, member in methods:
            if not method.startswith("_"):
                assert member.__doc__ or issubclass(value, criba.CribaError), f"{name}.{method}"


