"""The page on top of a release: what it holds, what it leaves out, and how to check it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

PAGE = """# draftledger: {experiment} {version}

Every number of `results/summary.parquet`, the rows it was computed from, and how each file was made. Read
`results/report.html`; `config.json` is the whole configuration; draftledger's `docs/formats.md` has the formats.

- root digest: `{root_digest}`, the sha256 of `results/SHA256SUMS`: compare it with the published one
- level: `{level}` (rows: without weights and corpus; adapters: with drafters' weights; full: everything)
- code: {code}
- left out: {left_out}

## Check it

```sh
shasum -a 256 -c SHA256SUMS        # every file here; sha256sum -c does the same
shasum -a 256 results/SHA256SUMS   # the root digest
```

`draftledger verify FILE.tar` checks the archive without unpacking it, and follows every number back to its roots;
`draftledger verify` here does so with the files. What is left out is still named by manifest and recipe, so it can be
made again and compared; draws (training, timing) can be made again, but not to the same bytes.

## Terms

What draftledger made is under the licence in `LICENSE`. Licences of all sources are in `licences/`.
"""


def cover(record: Mapping[str, Any]) -> bytes:
    """Return README.md of a release; `record` is its release.json."""
    words = {"code": _code(record), "left_out": _reasons(record["left_out"])}
    return PAGE.format_map({**record, **words}).encode()


def _code(record: Mapping[str, Any]) -> str:
    dirty = record["dirty"]
    commit = f"commit {record['commit']} of {record['date']}" if record["commit"] else "no commit"
    return f"{commit}; **dirty**: {len(dirty)} entries in `release.json`, first: {dirty[0]}" if dirty else commit


def _reasons(left_out: Mapping[str, str]) -> str:
    counts = sorted(Counter(left_out.values()).items())
    return "; ".join(f"{number} files ({reason})" for reason, number in counts) or "nothing"
