import criba
import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def db(path):
    with criba.open(path) as db:
        yield db
