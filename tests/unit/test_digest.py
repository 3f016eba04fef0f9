"""Digests name what a file says: they survive re-encoding, see every change of content, and refuse hostile files."""

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftledger.errors import CorruptError
from draftledger.provenance.digest import canonical_json, content_digest, digest, file_digest, tensor_digests

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ROWS = {"name": ["a", "b", "b", "c"], "number": [1, 2, 2, None], "list": [[1], [], None, [2, 3]]}


# --- plain values ----------------------------------------------------------------------------------------------------


@given(PLAIN)
def test_canonical_json_is_read_back_and_has_one_form(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers(), min_size=2, max_size=5))
def test_the_order_of_keys_does_not_count(value):
    assert digest(dict(reversed(value.items()))) == digest(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, -float("inf")]])
def test_numbers_without_a_json_form_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", Path("x"), np.float32(1)], ids=str)
def test_values_without_a_stable_form_are_refused(value):
    with pytest.raises(TypeError, match="serializable"):
        canonical_json({"key": value})


# --- safetensors -----------------------------------------------------------------------------------------------------


def tensors(path: Path, items, *, metadata=None, names=None) -> Path:
    """Write a safetensors file by hand: items are name: (dtype, shape, bytes), the header in the order of `names`."""
    offsets, place = {}, 0
    for name, (dtype, shape, data) in items.items():
        offsets[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    header = {"__metadata__": metadata} if metadata else {}
    return raw(path, header | {name: offsets[name] for name in names or items}, b"".join(x[2] for x in items.values()))


def raw(path: Path, header, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


ITEMS = {"w": ("F32", [2, 2], bytes(range(16))), "b": ("BF16", [4], bytes(range(50, 58)))}


def changed(name, *, dtype=None, shape=None, data=None):
    old = ITEMS[name]
    return ITEMS | {name: (dtype or old[0], shape or old[1], data or old[2])}


def test_header_order_data_order_and_metadata_do_not_count(tmp_path):
    first = content_digest(tensors(tmp_path / "a.safetensors", ITEMS))
    swapped = dict(reversed(ITEMS.items()))
    for name, path in {
        "header": tensors(tmp_path / "h.safetensors", ITEMS, names=["b", "w"]),
        "data": tensors(tmp_path / "d.safetensors", swapped),
        "metadata": tensors(tmp_path / "m.safetensors", ITEMS, metadata={"format": "mlx"}),
    }.items():
        assert content_digest(path) == first, name


@pytest.mark.parametrize(
    "items",
    [
        changed("w", dtype="I32"),
        changed("b", dtype="F16"),
        changed("w", shape=[4, 1]),
        changed("w", shape=[4]),
        changed("b", data=bytes(range(50, 57)) + b"\x00"),
        {"v": ITEMS["w"], "b": ITEMS["b"]},
        {"w": ITEMS["w"]},
        ITEMS | {"empty": ("F32", [0], b"")},
    ],
)
def test_dtype_shape_bytes_and_names_of_tensors_count(tmp_path, items):
    one, other = tensors(tmp_path / "a.safetensors", ITEMS), tensors(tmp_path / "b.safetensors", items)
    assert content_digest(one) != content_digest(other)


def test_a_file_written_by_mlx_has_a_digest_per_tensor(tmp_path):
    import mlx.core as mx

    weights = {"a": mx.arange(6).astype(mx.bfloat16), "b": mx.ones((2, 3))}
    mx.save_safetensors(str(tmp_path / "one.safetensors"), weights)
    mx.save_safetensors(str(tmp_path / "two.safetensors"), dict(reversed(weights.items())), {"made": "again"})
    found = tensor_digests(tmp_path / "one.safetensors")
    assert list(found) == ["a", "b"]
    assert tensor_digests(tmp_path / "two.safetensors") == found
    assert file_digest(tmp_path / "one.safetensors") != file_digest(tmp_path / "two.safetensors")


def test_bfloat16_counts_by_its_words_and_memory_layout_does_not(tmp_path):
    """A tensor is digested as evaluated, contiguous bytes; two words that print alike are two contents."""
    import mlx.core as mx

    words = mx.array([[0x3F80, 0x3F81, 0x7FC0], [0x0000, 0x8000, 0x7FC1]], dtype=mx.uint16)
    plain = mx.view(words, mx.bfloat16)
    same = {
        "plain": plain,
        "transposed": mx.transpose(mx.contiguous(mx.transpose(plain))),
        "not evaluated": mx.concatenate([plain[:1], plain[1:]]),
        "sliced": mx.concatenate([plain, plain], axis=1)[:, :3],
    }
    found = set()
    for name, array in same.items():
        mx.save_safetensors(str(tmp_path / f"{name}.safetensors"), {"w": array})
        found.add(content_digest(tmp_path / f"{name}.safetensors"))
    by_hand = tensors(tmp_path / "hand.safetensors", {"w": ("BF16", [2, 3], bytes(memoryview(words)))})
    assert found == {content_digest(by_hand)}
    for place in range(6):
        data = bytearray(memoryview(words))
        data[2 * place] ^= 1
        other = tensors(tmp_path / "other.safetensors", {"w": ("BF16", [2, 3], bytes(data))})
        assert content_digest(other) not in found


HOSTILE = {
    "empty": b"",
    "short": b"\x01\x02",
    "2^63 bytes of header": struct.pack("<Q", 2**63) + b"{}",
    "more header than file": struct.pack("<Q", 100) + b"{}",
    "nested lists": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "nested objects": struct.pack("<Q", 500_000) + b'{"a":' * 100_000,
    "no JSON": struct.pack("<Q", 4) + b"{..}",
    "no UTF-8": struct.pack("<Q", 4) + b'{"\xff"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_corrupt(tmp_path, name):
    path = tmp_path / "x.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(CorruptError, match="again") as caught:
        content_digest(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 300


TENSOR = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "header",
    [
        [],
        "text",
        {"w": None},
        {"w": {"dtype": "F32", "shape": [1]}},
        *(
            {"w": TENSOR | {"data_offsets": offsets}}
            for offsets in ([0, 5], [-4, 0], [4, 0], [0], ["0", "4"], 4, [0, 1e9])
        ),
        {"w": {"data_offsets": [0, 4]}},
    ],
    ids=str,
)
def test_a_header_that_does_not_describe_the_file_is_corrupt(tmp_path, header):
    with pytest.raises(CorruptError, match="again"):
        content_digest(raw(tmp_path / "x.safetensors", header, bytes(4)))


# --- parquet ---------------------------------------------------------------------------------------------------------


def table(path: Path, columns=ROWS, *, counts=None, dictionary=False, order=None, types=None, **options) -> Path:
    content = pa.table(columns if types is None else {k: pa.array(v, types.get(k)) for k, v in columns.items()})
    content = content.take(order) if order else content
    if dictionary:
        content = content.set_column(0, "name", content["name"].dictionary_encode())
    if counts:
        content = content.replace_schema_metadata({"draftledger.counts": json.dumps(counts)})
    pq.write_table(content, path, **options)
    return path


@pytest.mark.parametrize(
    "encoding",
    [
        {"compression": "none"},
        {"compression": "zstd", "compression_level": 9},
        {"row_group_size": 1},
        {"order": [3, 1, 0, 2]},
        {"dictionary": True},
        {"use_dictionary": False, "version": "1.0"},
        {"data_page_size": 1, "write_statistics": False},
        {"use_compliant_nested_type": False},
        {"store_schema": False},
        {"compression": "gzip", "data_page_version": "2.0", "version": "2.4", "row_group_size": 2},
        {"types": {"number": pa.int32(), "name": pa.large_string(), "list": pa.large_list(pa.int64())}},
    ],
    ids=str,
)
def test_the_encoding_and_the_order_of_rows_do_not_count(tmp_path, encoding):
    plain = table(tmp_path / "a.parquet", types={"number": pa.int32()})
    other = table(tmp_path / "b.parquet", **{"types": {"number": pa.int32()}, **encoding})
    assert content_digest(plain) == content_digest(other)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": ROWS | {"number": [1, 2, 3, None]}},
        {"columns": ROWS | {"number": [1, 2, 2, 0]}},
        {"columns": ROWS | {"list": [[1], None, None, [2, 3]]}},
        {"columns": {"title": ROWS["name"], "number": ROWS["number"], "list": ROWS["list"]}},
        {"columns": dict(reversed(ROWS.items()))},
        {"columns": {key: value[:3] for key, value in ROWS.items()}},
        {"columns": {key: [*value, value[1]] for key, value in ROWS.items()}},
        {"types": {"number": pa.int32()}},
        {"counts": {"kept": 4}},
    ],
    ids=str,
)
def test_values_rows_columns_types_and_counts_count(tmp_path, change):
    assert content_digest(table(tmp_path / "a.parquet")) != content_digest(table(tmp_path / "b.parquet", **change))


def test_two_columns_with_one_name_are_refused(tmp_path):
    pq.write_table(pa.table([[1], [5]], names=["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(CorruptError, match=r"a\.parquet"):
        content_digest(tmp_path / "a.parquet")


def test_a_byte_changed_in_a_table_is_no_other_error_than_corrupt(tmp_path):
    """Arrow tells damage in several classes, OSError among them, which elsewhere means a full or unreadable disk."""
    data, path = table(tmp_path / "whole.parquet", {"x": [1, 2, 3]}).read_bytes(), tmp_path / "x.parquet"
    refused = 0
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            content_digest(path)
        except CorruptError:
            refused += 1
    assert refused > len(data) // 70


def test_the_name_of_the_folder_does_not_count(tmp_path):
    (tmp_path / "run=3").mkdir()
    assert content_digest(table(tmp_path / "a.parquet")) == content_digest(table(tmp_path / "run=3" / "a.parquet"))


def test_equal_rows_of_two_columns_do_not_change_places(tmp_path):
    one = table(tmp_path / "a.parquet", {"x": [1, 2], "y": [3, 4]})
    other = table(tmp_path / "b.parquet", {"x": [1, 2], "y": [4, 3]})
    assert content_digest(one) != content_digest(other)


@pytest.mark.parametrize("column", [[float("nan")], [b"bytes"]], ids=["nan", "bytes"])
def test_a_table_with_values_that_have_no_stable_form_is_refused(tmp_path, column):
    with pytest.raises(CorruptError, match=r"x\.parquet"):
        content_digest(table(tmp_path / "x.parquet", {"x": column}))


# --- other files -----------------------------------------------------------------------------------------------------


def test_json_counts_by_value_and_any_other_file_by_its_bytes(tmp_path):
    for name, text in {"a.json": '{"x": 1, "y": 2}', "b.json": '{"y":2,\n"x":1}', "a.tsv": "1", "b.tsv": "1 "}.items():
        (tmp_path / name).write_text(text)
    assert content_digest(tmp_path / "a.json") == content_digest(tmp_path / "b.json")
    assert content_digest(tmp_path / "a.tsv") == file_digest(tmp_path / "a.tsv") != content_digest(tmp_path / "b.tsv")


@pytest.mark.parametrize("name", ["x.parquet", "x.json", "x.safetensors"])
@pytest.mark.parametrize(
    "data", [b"PAR1", b"\xff\xfe", b"[" * 100_000, b'{"x": NaN}'], ids=["magic", "bytes", "nest", "nan"]
)
def test_a_file_that_is_not_what_its_suffix_says_is_corrupt(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptError, match="again"):
        content_digest(tmp_path / name)
