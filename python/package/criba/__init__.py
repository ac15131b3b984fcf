"""An embedded key-value store for lookups that mostly miss, and Bloom filters.

Keys and values are bytes. Where a function takes them, it takes bytes, bytearray, memoryview, or a str as its UTF-8.

>>> with criba.open("seen") as db:
...     db.insert_if_absent("https://example.org/")  # True at the first time, also after a restart
"""

from . import errors
from ._criba import (
    BloomFilter,
    Db,
    GrowingBloomFilter,
    MappedBloomFilter,
    Reader,
    ReadOnlyDb,
    Scan,
    SharedBloomFilter,
    Snapshot,
    Transaction,
    open,
)
from .errors import *  # noqa: F403
from .errors import CribaError
from .readamp import readamp

__all__ = [
    "BloomFilter",
    "Db",
    "GrowingBloomFilter",
    "MappedBloomFilter",
    "ReadOnlyDb",
    "Reader",
    "Scan",
    "SharedBloomFilter",
    "Snapshot",
    "Transaction",
    "open",
    "readamp",
]
__all__ += [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, CribaError)]
