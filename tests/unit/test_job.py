"""The command line that all stages share: roles, refusals before any computation, run records, exit codes."""

import json
from pathlib import Path

import pytest

from draftledger.errors import ConfigError, DraftledgerError
from draftledger.provenance.digest import digest
from draftledger.provenance.job import Job, run_job
from draftledger.provenance.manifest import describe, manifest_path, read_manifest, write_manifest
from draftledger.provenance.recipe import read_recipe


class Command:
    """A stage's command line in a temporary folder."""

    def __init__(self, root: Path):
        self.root, self.results, self.jobs = root, root / "results", []
        self.results.mkdir()
        self.output = self.results / "out" / "rows.txt"
        self.environment = self.artefact("environment.json", '{"backend": "cpu"}')
        self.model = self.artefact("model/config.json", '{"width": 4}')
        self.prompts = root / "prompts.jsonl"
        self.prompts.write_text('{"id": "a"}\n')

    def artefact(self, name: str, text: str) -> Path:
        path = self.results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        write_manifest(path, describe(path))
        return path

    def run(self, *inputs: Path, spec='{"k": 3}', facts=None, nature="repeatable", fails=None) -> int:
        def compute(job: Job):
            self.jobs.append(job)
            if fails:
                raise fails
            job.out("rows.txt").write_text("rows")
            return facts

        outputs = [str(self.output), str(manifest_path(self.output))]
        options = ["--root", str(self.results), "--store", str(self.root / "store"), "--spec", spec, "--code", "c1"]
        files = [*inputs, *filter(Path.exists, map(manifest_path, inputs))]
        sources = ["workflow_scripts/decode.py", *map(str, files)]
        return run_job(compute, nature=nature, argv=[*options, "--input", *sources, "--output", *outputs])

    def record(self) -> dict:
        return json.loads(self.output.with_name("rows.txt.run.json").read_text())


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def last_line(capsys) -> str:
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told.strip()


# --- what a stage is given -------------------------------------------------------------------------------------------


def test_roles_are_paths_under_the_results_and_others_as_given(command):
    assert command.run(command.environment, command.model, command.prompts) == 0
    job = command.jobs[0]
    assert job.input("model/config.json") == job.input("config.json") == command.model
    assert job.input(command.prompts.as_posix()) == command.prompts
    assert (job.spec, job.environment) == ({"k": 3}, {"backend": "cpu"})
    assert not job.folder.exists()


def test_the_recipe_holds_rule_settings_code_class_and_contents(command):
    command.run(command.environment, command.model, command.prompts)
    recipe, draw = read_recipe(command.output)
    assert (recipe.rule, recipe.spec, recipe.code, draw) == ("decode", {"k": 3}, "c1", 0)
    assert recipe.environment == digest({"backend": "cpu"})
    contents = {item.role: item.content for item in recipe.inputs}
    assert contents["model/config.json"] == digest({"width": 4})
    assert set(contents) == {"model/config.json", command.prompts.as_posix()}


def test_a_stage_without_the_environment_is_the_same_on_any_machine(command):
    command.run(command.model)
    assert command.jobs[0].environment is None
    assert read_recipe(command.output)[0].environment is None


@pytest.mark.parametrize(("role", "count"), [("absent.json", 0), ("config.json", 2)])
def test_a_wrong_number_of_inputs_is_refused(command, role, count):
    command.run(command.model, command.artefact("other/config.json", "{}"))
    job = command.jobs[0]
    assert len(job.many(role)) == count
    with pytest.raises(ConfigError, match=rf"needs one input {role} and has {count}; check"):
        job.input(role)


def test_a_role_matches_whole_names_only(command):
    command.run(command.artefact("model/xconfig.json", "{}"))
    assert command.jobs[0].many("config.json") == []


def test_two_inputs_of_one_role_are_refused(command, capsys):
    (command.root / "link").symlink_to(command.results)
    assert command.run(command.model, command.root / "link" / "model" / "config.json") == 1
    assert "two inputs have the same role" in last_line(capsys)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_an_altered_input_is_refused_before_any_computation(command, capsys):
    command.model.write_text('{"width": 5}')
    assert command.run(command.model) == 1
    assert command.jobs == []
    told = last_line(capsys)
    assert told.startswith(f"draftledger: error: {command.model}: differs from its manifest;")
    assert not command.output.exists()


def test_an_input_that_is_gone_is_refused_before_any_computation(command, capsys):
    command.model.unlink()
    assert command.run(command.model) == 1
    assert command.jobs == []
    assert "absent; run the rule that makes it again" in last_line(capsys)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ConfigError("arms: k is 0; use at least 1"), "arms: k is 0; use at least 1"),
        (DraftledgerError("two\n  lines"), "two lines"),
        (OSError(28, "No space left on device", "/x/y"), "/x/y: No space left on device; free space or fix access"),
        (OSError("told by a library"), "a file: told by a library; free space or fix access"),
    ],
    ids=str,
)
def test_an_error_is_one_line_and_exit_code_1(command, capsys, fault, told):
    assert command.run(command.model, fails=fault) == 1
    assert last_line(capsys) == f"draftledger: error: {told}"
    assert not manifest_path(command.output).exists()


def test_a_fault_of_the_program_keeps_its_traceback(command):
    with pytest.raises(ZeroDivisionError):
        command.run(command.model, fails=ZeroDivisionError())


@pytest.mark.parametrize("spec", ["{", "", "{'k': 3}"])
def test_settings_that_are_no_json_are_a_usage_error(command, spec):
    with pytest.raises(SystemExit) as caught:
        command.run(command.model, spec=spec)
    assert caught.value.code == 2


# --- what is recorded ------------------------------------------------------------------------------------------------


def test_facts_of_the_run_go_to_the_run_record_and_nowhere_else(command):
    assert command.run(command.model, facts={"gflops": 7}) == 0
    record = command.record()
    assert (record["hit"], record["gflops"]) == (False, 7)
    assert set(record) == {"hit", "gflops", "finished", "host", "seconds"}
    assert "gflops" not in manifest_path(command.output).read_text()
    assert read_manifest(command.output).sha256


def test_a_hit_says_so(command, capsys):
    command.run(command.model)
    capsys.readouterr()
    assert command.run(command.model) == 0
    assert len(command.jobs) == 1
    assert command.record()["hit"]
    assert last_line(capsys).startswith(f"draftledger: {command.output}: store hit in 0.")


@pytest.mark.parametrize(("value", "computed"), [("refresh", 2), ("", 1)])
def test_refresh_is_asked_for_by_the_environment(command, monkeypatch, value, computed):
    monkeypatch.setenv("DRAFTLEDGER_STORE", value)
    command.run(command.model, nature="draw")
    command.run(command.model, nature="draw")
    assert len(command.jobs) == computed
    assert read_recipe(command.output)[1] == computed - 1
