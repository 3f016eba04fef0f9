"""A release: one experiment's finished results, and what a stranger needs to check them, as one archive."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from draftledger.errors import ConfigError, CorruptError
from draftledger.provenance.atomic import write_json
from draftledger.provenance.digest import file_digest
from draftledger.provenance.job import Facts, Job
from draftledger.provenance.ledger import NAME as SUMS


def archive_name(version: str, ledger: Path) -> str:
    """Return the archive's name: the version, and the root digest, which is the sha256 of the ledger."""
    return f"{version}-{file_digest(ledger)}.tar"


def with_archive(arguments: Sequence[str]) -> list[str]:
    """Add the archive to the outputs of a job's command line.

    Its name holds the root digest, which only the job knows; the rule declares the record beside it, VERSION.json.
    """
    ledgers = [path for text in arguments if (path := Path(text)).name == SUMS and path.is_file()]
    records = [path for text in arguments[-2:] if (path := Path(text)).name.count(".json") == 1]
    if not ledgers or not records:
        return list(arguments)
    return [*arguments, str(records[0].with_name(archive_name(records[0].stem, ledgers[0])))]


def make_release(job: Job) -> Facts:
    """Write the archive and its record.

    Raises ConfigError for a dirty checkout that is not allowed, a document without a licence, or a licence without a
    text, and CorruptError when the results are not those of the ledger or the archive fails its own check.
    """
    # Only here: what asks for help, or refuses, needs no Parquet.
    from draftledger.provenance.archive import FAULTS, verify_archive
    from draftledger.provenance.contents import gather
    from draftledger.provenance.tar import write_tar

    release, dirty = job.spec["release"], job.spec["checkout"]["dirty"]
    if dirty and not release["allow_dirty"]:
        told = f"{dirty[0]}{' and others' if len(dirty) > 1 else ''}"
        raise ConfigError(f"release: the checkout is dirty ({told}); commit, or set release.allow_dirty: true")
    contents = gather(job)
    archive = job.out(archive_name(release["version"], job.input(SUMS)))
    write_tar(archive, contents.files, top=f"{job.spec['config']['experiment']}-{release['version']}")
    if faults := [found for found in verify_archive(archive) if found.state in FAULTS]:
        raise CorruptError(f"release: {faults[0].path} is {faults[0].state} in it: {faults[0].reason}")
    sums = contents.files[SUMS]
    seals = {"sha256": file_digest(archive), "sums": hashlib.sha256(bytes(sums)).hexdigest()}
    write_json(job.out(f"{release['version']}.json"), {**contents.record, "archive": archive.name, **seals})
    return {"archive": archive.name, "files": len(contents.files)}
