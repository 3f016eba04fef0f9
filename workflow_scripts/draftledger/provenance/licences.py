"""Under which licences a release may hold what, and the text of each."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from draftledger.errors import ConfigError

FOLDER = "config/licences"
PROJECT, PROJECT_TEXT = "Apache-2.0", "LICENSE"
# SPDX identifiers of licences that let anyone pass the work on, also for money.
REDISTRIBUTABLE = frozenset(
    [
        "0BSD",
        "AGPL-3.0-only",
        "AGPL-3.0-or-later",
        "Apache-2.0",
        "Artistic-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC-BY-2.0",
        "CC-BY-2.5",
        "CC-BY-3.0",
        "CC-BY-4.0",
        "CC-BY-SA-2.0",
        "CC-BY-SA-2.5",
        "CC-BY-SA-3.0",
        "CC-BY-SA-4.0",
        "CC0-1.0",
        "CDLA-Permissive-1.0",
        "CDLA-Permissive-2.0",
        "CDLA-Sharing-1.0",
        "EPL-2.0",
        "EUPL-1.2",
        "GPL-2.0-only",
        "GPL-2.0-or-later",
        "GPL-3.0-only",
        "GPL-3.0-or-later",
        "ISC",
        "LGPL-2.1-only",
        "LGPL-2.1-or-later",
        "LGPL-3.0-only",
        "LGPL-3.0-or-later",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "MS-PL",
        "NCSA",
        "ODbL-1.0",
        "ODC-By-1.0",
        "PDDL-1.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    ]
)
UNSTATED = frozenset({"", "none", "noassertion", "other", "unknown"})


def may_pass_on(licence: str | None) -> bool:
    """Tell whether every part of an SPDX expression is known to allow redistribution; without a licence it is not."""
    return licence is not None and all(part in REDISTRIBUTABLE for part in _parts(licence))


def _parts(licence: str) -> list[str]:
    return re.split(r" (?:AND|OR) ", licence)


@dataclass(slots=True)
class Licences:
    """The licences of a release's sources: those of the documents, and the texts of all, by file name."""

    documents: set[str] = field(default_factory=set)
    texts: dict[str, bytes] = field(default_factory=dict)

    def add(self, licence: str, text: str | None, own: Mapping[str, Path], *, what: str) -> None:
        """Keep a licence's text: the source's own, else that of each part which stands in the checkout.

        `own` are the checkout's files by role. Raises ConfigError when there is none.
        """
        if text is not None:
            self._keep(licence, text.encode())
            return
        for part in _parts(licence):
            role = PROJECT_TEXT if part == PROJECT else f"{FOLDER}/{part}.txt"
            if role not in own:
                raise ConfigError(f"{what}: no text of its licence {part}; put it into {FOLDER}/{part}.txt")
            self._keep(part, own[role].read_bytes())

    def _keep(self, licence: str, text: bytes) -> None:
        name, number = re.sub(r"[^A-Za-z0-9.+-]+", "-", licence), 0
        while self.texts.setdefault(f"licences/{name}{f'-{number}' if number else ''}.txt", text) != text:
            number += 1


def read_licences(documents: Path | None, own: Mapping[str, Path]) -> Licences:
    """Collect the project's licence and every document's; raise ConfigError for a document that states none."""
    found = Licences()
    found.add(PROJECT, None, own, what="the project")
    for source, licence, text in _sources(documents) if documents else ():
        found.documents.add(licence)
        found.add(licence, text, own, what=source)
    return found


def _sources(path: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield each source's licence with its text, or with none where no document of the source holds one."""
    columns = ["id", "source", "licence", "licence_text"]
    texts: dict[tuple[str, str], set[str]] = {}
    for row in pq.read_table(path, columns=columns).to_pylist():
        if (row["licence"] or "").strip().lower() in UNSTATED:
            raise ConfigError(f"{path}: document {row['id']!r} states no licence; no release can hold what it is in")
        kept = texts.setdefault((row["source"], row["licence"]), set())
        kept.update({row["licence_text"]} - {None})
    for (source, licence), kept in sorted(texts.items()):
        yield from ((source, licence, text) for text in sorted(kept) or (None,))
