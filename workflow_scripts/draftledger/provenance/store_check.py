"""Check a store: every blob against its name, every entry of the index against its key and its blobs."""

from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.digest import file_digest
from draftledger.provenance.findings import Finding, Verified
from draftledger.provenance.index import entries, read_entry
from draftledger.provenance.store import Store


def verify_store(root: Path) -> Verified:
    """Re-hash every blob of the store at `root`; raise CorruptError when there is none."""
    if not root.is_dir():
        raise CorruptError(f"{root}: no such folder; name the store")
    blobs = [path for path in sorted(root.glob("*/*/*")) if path.parent.parent.name in ("blobs", "spares")]
    findings = [_blob(path) for path in blobs]
    return Verified((*findings, *(_entry(Store(root), path) for path in entries(Store(root)))))


def _blob(path: Path) -> Finding:
    if len(path.name) != 64 or path.parent.name != path.name[:2]:
        return Finding(str(path), "orphan", "its name is no digest in its place")
    return (
        Finding(str(path), "ok")
        if file_digest(path) == path.name
        else Finding(str(path), "altered", "is not its digest")
    )


def _entry(store: Store, path: Path) -> Finding:
    try:
        entry = read_entry(store, path)
    except CorruptError as error:
        return Finding(str(path), "altered", str(error))
    copies = {item.name: store.copies(item.sha256, twice=True) for item in entry.manifests}
    gone = [name for name, paths in copies.items() if not any(path.is_file() for path in paths)]
    if not gone:
        return Finding(str(path), "ok")
    names = ", ".join(gone)
    if entry.drawn:
        return Finding(str(path), "missing", f"the blobs of a draw are gone: {names}")
    return Finding(str(path), "absent", f"blobs are gone, and can be made again: {names}")
