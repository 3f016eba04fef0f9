"""One text with its origin and licence, and the table that keeps them."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import pyarrow as pa

from draftledger.errors import CorruptError
from draftledger.provenance.tables import close_counts, with_counts

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("licence_text", pa.string()),
    ]
)
DROPPED = ("too_short", "over_limit", "duplicates")


@dataclass(frozen=True, slots=True)
class Document:
    """A text; `licence` is an SPDX identifier, `licence_text` None where the source holds no text of it."""

    id: str
    text: str
    source: str
    revision: str
    licence: str
    licence_text: str | None = None


def documents_table(documents: Iterable[Document], counts: Counter[str]) -> pa.Table:
    """Collect documents into a table whose counts close; a text seen before is dropped and counted.

    `counts` is the counter a source fills while it is read (`read`, `too_short`, `over_limit`); an empty
    one means that nothing was dropped earlier. The licence text stands at the first document of a source.

    Raises:
        CorruptError: two documents share an id, or the counts do not close.
    """
    kept: list[Document] = []
    texts: set[bytes] = set()
    licences: set[tuple[str, str | None]] = set()
    arrived = 0
    for document in documents:
        arrived += 1
        digest = hashlib.sha256(document.text.encode()).digest()
        if digest in texts:
            continue
        texts.add(digest)
        kept.append(_licence_once(document, licences))
    _refuse_shared_ids(kept)
    before = {name: counts[name] for name in DROPPED[:2]}
    closed = {
        **before,
        "read": counts.get("read", arrived + sum(before.values())),
        "duplicates": arrived - len(kept),
        "kept": len(kept),
    }
    close_counts(closed, whole="read", parts=(*DROPPED, "kept"))
    columns = zip(*map(astuple, kept), strict=True) if kept else [[]] * len(SCHEMA)
    return with_counts(pa.table(list(map(list, columns)), schema=SCHEMA), closed)


def _licence_once(document: Document, seen: set[tuple[str, str | None]]) -> Document:
    key = (document.source, document.licence_text)
    if key in seen:
        return replace(document, licence_text=None)
    seen.add(key)
    return document


def _refuse_shared_ids(documents: list[Document]) -> None:
    twice = [name for name, times in Counter(document.id for document in documents).items() if times > 1]
    if twice:
        raise CorruptError(f"document id {twice[0]!r} stands for two texts; ids must be unique")
