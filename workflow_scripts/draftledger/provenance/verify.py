"""Check results without a workflow: name each artefact that is not what its manifest, recipe and the ledger say."""

from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.digest import file_digest
from draftledger.provenance.findings import Finding, Verified
from draftledger.provenance.graph import homes
from draftledger.provenance.inspection import Inspection
from draftledger.provenance.ledger import NAME


def verify(root: Path, *, base: Path = Path(), expect: str | None = None) -> Verified:
    """Re-hash all results at and under `root` and compare them with manifests, recipes and SHA256SUMS.

    Inputs outside the results (prompts, decision rules) are looked up under `base`. `expect` is a published root
    digest, the sha256 of a SHA256SUMS. Raises CorruptError when there is no such folder.
    """
    if not root.is_dir():
        raise CorruptError(f"{root}: no such folder; name the results with --root")
    inspections = [Inspection(home, base) for home in homes(root)]
    findings = [finding for each in inspections for finding in each.findings()]
    ledgers = [path for each in inspections if (path := each.folder / NAME).is_file()]
    if expect is not None and expect not in {file_digest(path) for path in ledgers}:
        told = f"its sha256 is not the published root digest {expect}"
        findings += [Finding(str(path), "altered", told) for path in ledgers or [root / NAME]]
    return Verified(tuple(findings), tuple(sorted({name for each in inspections for name in each.unchecked})))
