"""Errors meant for the user: what went wrong, where, and what to do, in one line."""


class DraftledgerError(Exception):
    """Base of every error whose message is shown without a traceback; exit code 1."""


class ConfigError(DraftledgerError):
    """A setting is missing, misspelt or out of range."""


class CorruptError(DraftledgerError):
    """Bytes on disk differ from what their manifest says."""


class SourceError(DraftledgerError):
    """A model or corpus source is absent, cut short, or not the pinned one."""


class UnsupportedError(DraftledgerError):
    """The target, cache or drafter is of a kind that is not handled exactly."""


class StorageError(DraftledgerError):
    """A file could not be written: no space left, or no access."""
