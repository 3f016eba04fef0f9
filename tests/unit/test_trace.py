"""The way back from a number reaches its roots, shows what it lacks, and is drawn the same every time."""

import json
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from draftledger.errors import ConfigError, CorruptError
from draftledger.figures.layers import layout
from draftledger.figures.lineage import draw
from draftledger.figures.tree import record, terminal_tree
from draftledger.provenance.atomic import write_json
from draftledger.provenance.digest import digest
from draftledger.provenance.graph import Folder, one_home, read_graph
from draftledger.provenance.manifest import manifest_path, read_manifest
from draftledger.provenance.numbers import COLUMNS, choose, name, read_numbers
from draftledger.provenance.recipe import Input, Recipe, recipe_path, recipe_record
from draftledger.provenance.roots import pins
from draftledger.provenance.trace import gaps, trace_artefact, trace_number, walk
from forge import Home, table

ROOT = Path(__file__).resolve().parents[2]
RULES, PROMPTS = "config/decision.yaml", "config/prompts/p.jsonl"
DECISION, ASKED = "d" * 64, "e" * 64


@pytest.fixture
def home(tmp_path):
    """Return results of two seeds down to a summary."""
    made = Home(tmp_path / "results")
    made.add("environment.json", "{}", rule="environment", spec={"software": {"mlx": "0.1", "none": None}})
    made.add("corpus/documents.txt", rule="corpus", spec={"package": "texts==1", "sha256": "a" * 64})
    made.add("model/weights.txt", rule="model", spec={"repo": "someone/model", "revision": "b" * 40})
    made.add("model/tokens.txt", "tokens", rule="model", spec={"repo": "someone/model", "revision": "b" * 40})
    model = ["model/weights.txt", "model/tokens.txt", "environment.json"]
    for seed in (1, 2):
        where, spec = f"seed{seed}", {"seed": seed, "launch": 0}
        made.add(f"adapters/{where}/a.txt", where, rule="adapter", spec=spec, reads=[*model, "corpus/documents.txt"])
        read = [*model, f"adapters/{where}/a.txt"]
        made.add(f"decode/{where}/rounds.txt", where, spec=spec, reads=read, outside={PROMPTS: ASKED})
    rounds = [f"decode/seed{seed}/rounds.txt" for seed in (1, 2)]
    made.add(
        "summary.parquet",
        table(**{name: ["speed"] for name in COLUMNS}),
        rule="summary",
        reads=rounds,
        outside={RULES: DECISION},
    )
    return made


def row(home, **changes):
    inputs = [read_manifest(home.folder / f"decode/seed{seed}/rounds.txt").content for seed in (1, 2)]
    return {"metric": "speed", "decision": DECISION, "inputs": inputs, **changes}


def way(home, seed=None, **changes):
    return trace_number(read_graph(Folder(home.folder)), row(home, **changes), seed=seed)


def names(root) -> set[str]:
    found: set[str] = set()
    for node in walk(root):
        found.update([file for file, _ in node.files] or [node.name])
    return found


def test_every_root_is_reached(home):
    root = way(home)
    assert gaps(root) == []
    assert names(root) >= {
        f"texts==1 sha256:{'a' * 64}",
        f"someone/model@{'b' * 40}",
        "mlx 0.1",
        "training seed 1, launch 0",
        "training seed 2, launch 0",
        PROMPTS,
        RULES,
    }


def test_a_job_is_one_node_however_often_it_is_reached(home):
    files = [node.files for node in walk(way(home))]
    assert sum("model/weights.txt" in dict(each) for each in files) == 1
    assert {"model/weights.txt", "model/tokens.txt"} in [set(dict(each)) for each in files]


def test_one_seed_leaves_the_other_out(home):
    assert "adapters/seed1/a.txt" in names(way(home, seed=1))
    assert "adapters/seed2/a.txt" not in names(way(home, seed=1))
    assert RULES in names(way(home, seed=1))


def remove_manifest(home):
    manifest_path(home.folder / "corpus/documents.txt").unlink()


def remove_recipe(home):
    recipe_path(home.folder / "model/weights.txt").unlink()


def change_an_input(home):
    home.add("corpus/documents.txt", "other", rule="corpus", spec={"kind": "synthetic", "seed": 1})


def unpin_a_source(home):
    home.add("model/weights.txt", rule="model")
    home.add("model/tokens.txt", "tokens", rule="model")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (remove_manifest, "corpus/documents.txt: nothing here has the content"),
        (remove_recipe, "model/weights.txt: no recipe"),
        (change_an_input, "corpus/documents.txt: adapter read"),
        (unpin_a_source, "model: no input and no pin says where its bytes come from"),
    ],
)
def test_what_is_lacking_is_a_gap(home, damage, told):
    damage(home)
    found = gaps(way(home))
    assert len(found) >= 1
    assert all(gap.startswith(told) for gap in found)


def test_an_unknown_input_or_decision_is_a_gap(home):
    assert gaps(way(home, inputs=["f" * 64])) == ["an input: nothing here has the content ffffffffffff"]
    assert len(gaps(way(home, decision="f" * 64))) == 1
    recipe_path(home.folder / "summary.parquet").unlink()
    assert len(gaps(way(home))) == 1


def test_a_payload_that_is_not_here_is_no_gap(home):
    (home.folder / "model/weights.txt").unlink()
    assert gaps(way(home)) == []


def test_a_forged_circle_ends(home):
    path = home.folder / "corpus/documents.txt"
    loop = Recipe("corpus", {}, "c", None, (Input("corpus/documents.txt", read_manifest(path).content),))
    write_json(recipe_path(path), recipe_record(loop, draw=0))
    assert "corpus/documents.txt: made from itself" in gaps(way(home))


def test_an_artefact_has_a_way_back_too(home):
    root = trace_artefact(read_graph(Folder(home.folder)), "decode/seed2/rounds.txt")
    assert {"adapters/seed2/a.txt", "mlx 0.1"} <= names(root)
    with pytest.raises(ConfigError, match="no manifest here has this name"):
        trace_artefact(read_graph(Folder(home.folder)), "decode/seed3/rounds.txt")


# --- pictures --------------------------------------------------------------------------------------------------------


def test_the_tree_names_every_node_and_repeats_none(home):
    root = way(home)
    console = Console(width=200, record=True, file=StringIO())
    console.print(terminal_tree(root, title="speed of light: 3"))
    text = console.export_text()
    assert text.startswith("speed of light: 3")
    for told in ("model/*", "adapters/seed1/a.txt", "mlx 0.1", "training seed 2", RULES, "as above: model/*"):
        assert told in text
    assert text.count("weights.txt ") == 1


def test_the_picture_is_whole_and_repeats_to_the_byte(home):
    first, second = (draw(way(home), title="speed <of> light: 3") for _ in range(2))
    assert first == second
    root = ET.fromstring(first)
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"speed <of> light: 3", "model/*", "environment.json", RULES} <= texts
    assert not [element for element in root.iter() if "id" in element.attrib]


def test_links_lead_from_one_column_to_the_next_and_miss_nobody(home):
    root = way(home)
    columns, links = layout(root)
    assert all(end.column == start.column + 1 for start, end in links)
    assert {id(slot.node) for column in columns for slot in column} == {
        id(node) for node in walk(root) if node.kind != "upstream"
    }
    ends = {id(end.node) for _, end in links}
    assert all(id(slot.node) in ends for column in columns[1:] for slot in column)


def test_the_record_is_plain_and_points_to_its_nodes(home):
    found = json.loads(json.dumps(record(way(home), {"metric": "speed"})))
    assert found["number"] == {"metric": "speed"}
    assert found["nodes"][0]["kind"] == "number"
    assert all(0 <= place < len(found["nodes"]) for node in found["nodes"] for place in node["inputs"])


# --- choosing a number -----------------------------------------------------------------------------------------------

EMPTY = {"baseline": None, "slot": None, "low": None, "high": None, "unit": "ratio", "scope": "all"}
NUMBERS = [
    {**EMPTY, "metric": "speed", "arm": "a", "baseline": "ar", "estimate": 1.5, "low": 1.0, "high": 2.0},
    {**EMPTY, "metric": "speed", "arm": "b", "baseline": "ar", "estimate": 2.0},
    {**EMPTY, "metric": "speed", "arm": "b", "baseline": "ar", "estimate": 3.0, "scope": "category:code"},
    {**EMPTY, "metric": "survival", "arm": "b", "slot": 1, "estimate": 0.5},
]


def test_a_number_is_chosen_by_its_row_or_by_what_it_is():
    assert choose(NUMBERS, "2", {}) is NUMBERS[2]
    assert choose(NUMBERS, "speed", {"arm": "b"}) is NUMBERS[1]
    assert choose(NUMBERS, "speed", {"arm": "b", "scope": "category:code"}) is NUMBERS[2]
    assert choose(NUMBERS, "survival", {}) is NUMBERS[3]


@pytest.mark.parametrize(
    ("what", "wanted", "told"),
    [
        ("4", {}, "rows 0 to 3"),
        ("speed", {}, "2 rows; say which with --arm.*speed of a against ar"),
        ("speed", {"arm": "c"}, "the metrics are speed, survival"),
        ("pace", {}, "the metrics are speed, survival"),
    ],
)
def test_a_choice_that_is_none_says_what_there_is(what, wanted, told):
    with pytest.raises(ConfigError, match=told):
        choose(NUMBERS, what, wanted)


def test_a_number_is_named_in_a_line():
    assert name(NUMBERS[0]) == "speed of a against ar: 1.50 [1.00, 2.00] ratio"
    assert name(NUMBERS[2]) == "speed of b against ar, category:code: 3.00 ratio"
    assert name(NUMBERS[3]) == "survival of b, slot 1: 0.500 ratio"


def test_a_summary_that_differs_from_its_manifest_is_refused(home):
    files = Folder(home.folder)
    assert read_numbers(files) == [dict.fromkeys(COLUMNS, "speed")]
    (home.folder / "summary.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptError, match="differs from its manifest"):
        read_numbers(files)
    home.add("summary.parquet", table(metric=["speed"]), rule="summary")
    with pytest.raises(CorruptError, match="not a summary that can be read"):
        read_numbers(files)
    (home.folder / "summary.parquet").unlink()
    with pytest.raises(CorruptError, match="is not here"):
        read_numbers(files)


def test_one_of_several_results_must_be_named(tmp_path):
    for folder in ("a", "b"):
        Home(tmp_path / folder).add("environment.json", "{}", rule="environment")
    with pytest.raises(ConfigError, match=r"name one with --root: \S+/a, \S+/b"):
        one_home(tmp_path)
    assert one_home(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "b" / "environment.json.manifest.json").unlink()
    assert one_home(tmp_path) == tmp_path / "a"


@pytest.mark.parametrize(
    ("rule", "spec", "pinned"),
    [
        ("model", {"kind": "gguf", "package": "p==1", "member": "m.gguf", "sha256": "0"}, ["p==1 sha256:0 (m.gguf)"]),
        ("model", {"kind": "gguf", "path": "m.gguf", "sha256": "0"}, ["m.gguf sha256:0"]),
        ("model", {"kind": "local", "path": "m"}, []),
        ("model", {"kind": "tiny", "seed": 3}, ["first weights drawn here, seed 3"]),
        ("corpus", {"kind": "synthetic", "seed": 7}, ["generated here, seed 7"]),
        ("published", {"kind": "dflash", "adapter": {"repo": "r", "revision": "1"}}, ["r@1"]),
        (
            "corpus",
            {
                "kind": "several",
                "sources": [{"kind": "synthetic", "seed": 4}, {"package": "a==1", "sha256": "f"}, {"path": "texts"}],
            },
            ["a==1 sha256:f", "generated here, seed 4"],
        ),
        ("continuations", {"seed": 2, "kinds": {"chat": 1}}, ["questions and samples, seed 2"]),
        ("decode", {"arm": "ar", "settings": {"kind": "ar"}}, []),
    ],
)
def test_what_pins_the_bytes_from_outside(rule, spec, pinned):
    assert pins(Recipe(rule, spec, digest("code"), None, ())) == pinned


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_first_stages_of_every_shipped_experiment_say_where_their_bytes_come_from(path):
    config = yaml.safe_load(path.read_text())
    if "experiment" not in config:
        pytest.skip("no experiment")
    for rule, block in (("model", "target"), ("corpus", "corpus")):
        if block in config and "path" not in config[block]:  # a file of the user's is an input by content
            assert pins(Recipe(rule, config[block], digest("code"), None, ()))
