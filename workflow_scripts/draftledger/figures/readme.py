"""Generated text inside a document: what stands between two markers is a file's content, and never typed by hand."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftledger.errors import ConfigError, DraftledgerError
from draftledger.provenance.atomic import write_bytes

OPEN = re.compile(r"^<!-- generated: (\S+) -->\n", re.MULTILINE)
CLOSE = "<!-- /generated -->"


def wanted(readme: str) -> list[str]:
    """Return the file names of a document's markers, in order."""
    return OPEN.findall(readme)


def include(readme: str, generated: Mapping[str, str]) -> str:
    """Return the document with each marked part replaced by the text of the file that its marker names.

    A part runs from `<!-- generated: NAME -->` to the next `<!-- /generated -->`, each on a line of its own.
    Raises ConfigError for a name without text, and for a marker that is not closed before the next one.
    """
    before, *parts = OPEN.split(readme)
    told = [before]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        head, found, tail = part.partition(CLOSE)
        if not found or CLOSE in tail or (head and not head.endswith("\n")):
            raise ConfigError(f"marker of {name}: needs one line {CLOSE!r} after it; add it")
        if name not in generated:
            raise ConfigError(f"marker of {name}: no such text; make the file or remove the marker")
        told.append(f"<!-- generated: {name} -->\n{generated[name].rstrip()}\n{CLOSE}{tail}")
    return "".join(told)


def main(arguments: Sequence[str]) -> int:
    """Bring a document up to date, or with `--check` return 1 when it is not; names are relative to its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the document is stale")
    options = parser.parse_args(arguments)
    try:
        text = options.document.read_text(encoding="utf-8")
        fresh = include(text, _texts(options.document.parent, wanted(text)))
    except (DraftledgerError, OSError) as error:
        print(f"draftledger: error: {error}", file=sys.stderr)
        return 1
    if text == fresh:
        return 0
    if options.check:
        print(f"draftledger: error: {options.document}: stale; run without --check", file=sys.stderr)
        return 1
    write_bytes(options.document, fresh.encode())
    return 0


def _texts(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
