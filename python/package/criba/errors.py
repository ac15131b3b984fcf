"""The exceptions of criba. Each has the file that it concerns, if there is one, and the offset in bytes."""


class CribaError(Exception):
    """An error of a store or filter. `file` and `offset` are None where there is none."""

    file = None
    offset = None


class IoError(CribaError, OSError):
    """The operating system failed: errno, strerror and filename are those of an OSError."""

    __str__ = Exception.__str__  # that of an OSError leaves the message out


class CorruptError(CribaError):
    """A file is damaged at the offset. Nothing was changed."""


class MissingError(CribaError):
    """A file of the store is missing."""


class UnsupportedError(CribaError):
    """A file is of another version of criba."""


class InvalidPathError(CribaError, ValueError):
    """No store can be made at this path."""


class MovedError(CribaError):
    """The directory or a file of an open store was removed or replaced."""


class NotAStoreError(CribaError):
    """The directory is not a store. It was not changed."""


class LockedError(CribaError):
    """The store is in use, in this process or another: open it with read_only=True, or close it there."""


class ClosedError(CribaError):
    """The store, snapshot or transaction is closed."""


class ForkedError(CribaError):
    """This process is a fork of the one that opened the store: open it in the child, and start it by "spawn"."""


class TooLongError(CribaError, ValueError):
    """A key, value or batch is too long. Nothing was written."""


class UnsortedError(CribaError, ValueError):
    """A key of an ingest is not greater than the one before. Nothing was changed."""


class ConflictError(CribaError):
    """What a transaction read was written meanwhile, each time that it was tried. Nothing was written."""


class TransactionTooLargeError(CribaError):
    """A transaction has read too many keys. Nothing was written."""


class InvalidOptionError(CribaError, ValueError):
    """The value of an option is invalid. Nothing was changed."""


class ClockBehindError(CribaError):
    """The clock is more than an hour behind the time that the store has recorded."""


class PoisonedError(CribaError):
    """The store refuses writes until it is opened again, because of an earlier failure."""


class BackgroundError(CribaError):
    """A flush or compaction that the call waits for failed. The store tries again."""


class FilterLiesError(CribaError):
    """A new filter denies a key of its table. It was not installed."""


class MemoryLimitError(CribaError):
    """The store needs more memory than memory_limit. Nothing was changed."""


class MismatchError(CribaError, ValueError):
    """Two filters of different size or hash cannot be united."""
