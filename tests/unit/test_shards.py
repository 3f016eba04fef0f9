"""Teacher shards: the union is the same however the windows are cut, and a wrong union is refused."""

import mlx.core as mx
import numpy as np
import pytest

from draftledger.errors import ConfigError, CorruptError
from draftledger.teacher import shards
from draftledger.teacher.shards import BOUNDS, check_tail, encode_windows, load_shards, save_shard
from draftledger.teacher.topk import TopK, encode
from targets import dense, hybrid
from teachers import tokens

TARGETS = {"hybrid": hybrid, "dense": dense}
K, COUNT, LENGTH = 8, 6, 10


def numbered() -> list[tuple[int, np.ndarray]]:
    return list(enumerate(tokens(COUNT, LENGTH)))


def write(folder, model, cuts: list[list[int]]):
    paths = []
    for part in cuts:
        made = list(encode_windows(model, [numbered()[i] for i in part], k=K, dense=0))
        paths.append(folder / f"{len(paths)}-{len(cuts)}.safetensors")
        save_shard(paths[-1], part, [top for top, _ in made])
    return paths


def fields(top: TopK) -> list[np.ndarray]:
    return [getattr(top, name) for name in TopK.__slots__]


@pytest.mark.parametrize("target", TARGETS)
def test_the_union_does_not_depend_on_the_cut(target, tmp_path):
    model, order = TARGETS[target](), list(range(COUNT))
    whole = load_shards(write(tmp_path, model, [order]), order)
    cut = load_shards(write(tmp_path, model, [[3, 4, 5], [0, 1], [2]]), order)
    assert (whole.ids == cut.ids).all()
    for one, two in zip(fields(whole), fields(cut), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_cached_rows_are_those_of_each_window_run_alone(target, tmp_path):
    model = TARGETS[target]()
    loaded = load_shards(write(tmp_path, model, [list(range(COUNT))]), range(COUNT))
    for place, (_, window) in enumerate(numbered()):
        alone = encode(np.array(model(mx.array(window)[None]))[0], K)
        assert (loaded.ids[place] == alone.ids).all()
        np.testing.assert_allclose(loaded.log_p[place], alone.log_p, atol=2e-5)


def test_windows_come_back_in_the_order_asked_for(tmp_path):
    paths = write(tmp_path, dense(), [[0, 1, 2], [3, 4, 5]])
    straight = load_shards(paths, range(COUNT))
    wanted = [4, 0, 5, 2, 1, 3]
    for shuffled in (load_shards(paths, wanted), load_shards(paths[::-1], wanted)):
        for one, two in zip(fields(straight), fields(shuffled), strict=True):
            assert (one[wanted] == two).all()


@pytest.mark.parametrize("cuts", [[[0, 1, 2], [3, 4]], [[0, 1, 2, 3], [3, 4, 5]], [[0, 1, 2, 3, 4, 5, 5]]])
def test_a_missing_or_double_window_is_refused(cuts, tmp_path):
    paths = write(tmp_path, dense(), cuts)
    with pytest.raises(CorruptError, match="do not hold exactly the windows"):
        load_shards(paths, range(COUNT))


def test_bounds_rows_match_the_schema_and_only_the_first_are_dense():
    rows = [row for _, row in encode_windows(hybrid(), numbered(), k=K, dense=2)]
    assert all(set(row) == set(BOUNDS.names) for row in rows)
    assert [row["dense"] for row in rows] == [True] * 2 + [False] * (COUNT - 2)
    for row in rows[:2]:
        assert row["acceptance_low"] <= row["acceptance"] <= row["acceptance_high"]
        assert 0 < row["renormalised_tv"] < 1
    assert all(row["tail_mean"] <= row["tail_max"] and row["positions"] == LENGTH for row in rows)


def test_a_teacher_outside_its_own_bounds_is_refused(monkeypatch):
    def wrong(logits, k):
        top = encode(logits, k)
        return TopK(top.logits, top.ids, top.lse, top.tail / 2)

    monkeypatch.setattr(shards, "encode", wrong)
    with pytest.raises(CorruptError, match="outside the bounds"):
        list(encode_windows(dense(), numbered(), k=K, dense=1))


def test_the_tail_limit_is_on_the_mean_over_positions():
    rows = [{"tail_mean": 0.1, "positions": 3}, {"tail_mean": 0.5, "positions": 1}]
    check_tail(rows, limit=0.2 + 1e-12)
    with pytest.raises(ConfigError, match="raise top_k"):
        check_tail(rows, limit=0.19)
