"""The document table: nothing vanishes, licences stand once, equal tables make equal bytes."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.corpus.document import SCHEMA, Document, documents_table
from draftledger.errors import CorruptError
from draftledger.provenance.tables import close_counts, counts_of, with_counts, write_table


def document(name: str, text: str, *, source: str = "s", licence_text: str | None = "free") -> Document:
    return Document(name, text, source, "r1", "MIT", licence_text)


@settings(deadline=None)  # the first table imports pandas
@given(st.lists(st.sampled_from(["one", "two", "three", "four"])))
def test_each_text_is_kept_once_and_the_rest_counted(texts: list[str]) -> None:
    documents = [document(str(number), text) for number, text in enumerate(texts)]
    table = documents_table(iter(documents), Counter())
    counts = counts_of(table)
    assert table["text"].to_pylist() == list(dict.fromkeys(texts))
    assert counts["read"] == len(texts)
    assert counts["duplicates"] == len(texts) - len(set(texts))
    assert counts["kept"] == table.num_rows


def test_counts_of_the_source_are_carried_over() -> None:
    counts = Counter(read=5, too_short=2, over_limit=1)
    table = documents_table([document("a", "x"), document("b", "x")], counts)
    assert counts_of(table) == {"read": 5, "too_short": 2, "over_limit": 1, "duplicates": 1, "kept": 1}


def test_a_lost_document_is_noticed() -> None:
    with pytest.raises(CorruptError, match="read is 3"):
        documents_table([document("a", "x")], Counter(read=3))


def test_two_texts_under_one_id_are_refused() -> None:
    with pytest.raises(CorruptError, match="'a' stands for two texts"):
        documents_table([document("a", "x"), document("a", "y")], Counter())


def test_the_licence_text_stands_once_a_source() -> None:
    documents = [document("a", "x"), document("b", "y"), document("c", "z", source="t")]
    assert documents_table(documents, Counter())["licence_text"].to_pylist() == ["free", None, "free"]


def test_no_documents_make_an_empty_table_of_the_same_schema() -> None:
    table = documents_table([], Counter())
    assert table.num_rows == 0
    assert table.schema.equals(SCHEMA)


def test_equal_tables_make_equal_bytes_whatever_their_history(tmp_path: Path) -> None:
    table = with_counts(pa.table({"n": list(range(1000))}), {"b": 1, "a": 2})
    pieces = pa.concat_tables([table.slice(0, 10), table.slice(10)])
    for number, made in enumerate((table, pieces)):
        write_table(made, tmp_path / f"{number}.parquet")
    assert (tmp_path / "0.parquet").read_bytes() == (tmp_path / "1.parquet").read_bytes()
    assert counts_of(pq.read_table(tmp_path / "0.parquet")) == {"a": 2, "b": 1}
    assert len(list(tmp_path.iterdir())) == 2


def test_pandas_metadata_does_not_reach_the_file(tmp_path: Path) -> None:
    table = with_counts(pa.table({"n": [1]}).replace_schema_metadata({b"pandas": b"{}"}), {"rows": 1})
    write_table(table, tmp_path / "t.parquet")
    write_table(with_counts(pa.table({"n": [1]}), {"rows": 1}), tmp_path / "u.parquet")
    assert (tmp_path / "t.parquet").read_bytes() == (tmp_path / "u.parquet").read_bytes()


@pytest.mark.parametrize("count", [-1, 1.5, True, None])
def test_only_whole_numbers_are_counts(count: object) -> None:
    with pytest.raises(CorruptError, match="whole number"):
        with_counts(pa.table({"n": [1]}), {"n": count})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("stored", [b"{", b"[]", b'{"a": -1}'])
def test_damaged_counts_are_refused(stored: bytes) -> None:
    with pytest.raises(CorruptError, match="counts"):
        counts_of(pa.table({"n": [1]}).replace_schema_metadata({b"draftledger.counts": stored}))


def test_a_table_of_others_has_no_counts() -> None:
    assert counts_of(pa.table({"n": [1]})) == {}


def test_closing_takes_an_absent_part_as_zero() -> None:
    close_counts({"read": 2, "kept": 2}, whole="read", parts=("kept", "dropped"))
    with pytest.raises(CorruptError, match="do not close"):
        close_counts({"kept": 0}, whole="read", parts=("kept",))
