"""What results name stays in the store; what they do not goes, and nothing goes in doubt."""

import fcntl
import os

import pytest

from draftledger.errors import ConfigError, CorruptError
from draftledger.provenance.gc import garbage
from draftledger.provenance.manifest import manifest_path
from draftledger.provenance.stage import Stage, stage
from draftledger.provenance.store import Store
from draftledger.provenance.store_check import verify_store
from forge import Home


@pytest.fixture
def home(tmp_path):
    """Return an empty folder of results."""
    return Home(tmp_path / "results")


@pytest.fixture
def store(home):
    """Return a store in which a corpus and two draws of an adapter are named, and a decode is not any more."""
    made = Store(home.folder / "store")
    run(home, made, "corpus", "documents")
    run(home, made, "adapter", "first", nature="draw")
    run(home, made, "adapter", "second", nature="draw", refresh=True)
    run(home, made, "decode", "rounds")
    for path in home.folder.glob("decode*"):
        path.unlink()
    return made


def run(home, store, rule, text, *, nature="repeatable", refresh=False):
    job = Stage(home.recipe(rule), (home.folder / f"{rule}.txt",), nature)
    stage(job, lambda folder, _: (folder / f"{rule}.txt").write_text(text) and None, store=store, refresh=refresh)


def texts(store) -> set[str]:
    return {path.read_text() for path in store.root.glob("blobs/*/*")}


def test_only_what_nothing_names_goes(home, store):
    found = garbage([home.folder], store, days=30)
    assert (len(found.actions), len(found.blobs), found.draws) == (1, 1, 0)
    assert found.bytes == sum(path.stat().st_size for path in (*found.actions, *found.blobs))
    assert texts(store) == {"documents", "first", "second", "rounds"}
    found.drop()
    assert texts(store) == {"documents", "first", "second"}
    assert verify_store(store.root).faults == []
    again = garbage([home.folder], store, days=30)
    assert (again.actions, again.blobs, again.bytes) == ((), (), 0)


def test_every_root_counts(home, store, tmp_path):
    other = Home(tmp_path / "other")
    run(other, store, "decode", "rounds")
    assert garbage([home.folder, other.folder], store, days=30).blobs == ()


def test_what_a_manifest_names_stays_without_its_recipe(home, store):
    (home.folder / "corpus.txt.recipe.json").unlink()
    garbage([home.folder], store, days=30).drop()
    assert "documents" in texts(store)


def test_unnamed_draws_are_counted_and_both_copies_go(home, store):
    for path in home.folder.glob("adapter*"):
        path.unlink()
    found = garbage([home.folder], store, days=30)
    assert found.draws == 2
    found.drop()
    assert texts(store) == {"documents"}
    assert list(store.root.glob("spares/*/*")) == []


def test_old_checkpoints_go_and_young_ones_stay(home, store):
    for name, age in (("old", 40), ("young", 1)):
        folder = store.partial(name, 0)
        folder.mkdir(parents=True)
        (folder / "state").write_text("x" * 10)
        then = folder.stat().st_mtime - age * 86_400
        os.utime(folder / "state", (then, then))
        os.utime(folder, (then, then))
    found = garbage([home.folder], store, days=30)
    assert found.partial == (store.partial("old", 0),)
    found.drop()
    assert not store.partial("old", 0).exists()
    assert (store.partial("young", 0) / "state").exists()


def test_without_results_nothing_goes(store, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no results name anything"):
        garbage([tmp_path / "empty"], store, days=30)


def test_in_doubt_nothing_goes(home, store):
    manifest_path(home.folder / "corpus.txt").write_text("{")
    with pytest.raises(CorruptError, match="unreadable manifest"):
        garbage([home.folder], store, days=30)


def test_while_a_job_runs_nothing_goes(home, store):
    (store.root / "scratch").mkdir(exist_ok=True)
    with open(store.root / "scratch" / "key.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="a job is running"):
            garbage([home.folder], store, days=30)
    assert garbage([home.folder], store, days=30).blobs
