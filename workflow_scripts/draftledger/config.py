"""Configuration: checked against the schema and against itself, each fault told in one line."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match

from draftledger.errors import ConfigError

TRAINING = ("corpus", "windows", "teacher", "seeds", "launches")


def check_config(config: dict[str, Any], schema_path: Path) -> None:
    """Raise ConfigError, one line with what, where and what to do, at the first fault of a configuration."""
    schema = yaml.safe_load(schema_path.read_text())
    fault = best_match(Draft202012Validator(schema).iter_errors(config))
    if fault is not None:
        raise ConfigError(_told(_deepest(fault)))
    for message in _references(config):
        raise ConfigError(message)


def _deepest(fault: ValidationError) -> ValidationError:
    """Of a choice by `kind`, follow the branch of the kind that was written."""
    while fault.validator == "oneOf" and isinstance(fault.instance, dict):
        branches: dict[int, list[ValidationError]] = {}
        for error in fault.context or []:
            branches.setdefault(int(error.schema_path[0]), []).append(error)
        fitting = [errors for errors in branches.values() if not any(_wrong_kind(error) for error in errors)]
        if len(fitting) != 1:
            return fault
        fault = fitting[0][0]
    return fault


def _wrong_kind(error: ValidationError) -> bool:
    return error.validator == "const" and list(error.relative_path)[-1:] == ["kind"]


def _told(fault: ValidationError) -> str:
    where = ".".join(str(step) for step in fault.absolute_path) or "the top level"
    instance: Any = fault.instance
    expected: Any = fault.validator_value
    match fault.validator:
        case "additionalProperties":
            return _unknown_key(fault, where)
        case "required":
            missing = [name for name in expected if name not in instance]
            return f"config, {where}: {', '.join(missing)} missing; see config/README.md"
        case "oneOf" if isinstance(instance, dict):
            kinds = [branch["title"] for branch in expected if "title" in branch]
            return f"config, {where}: kind {instance.get('kind')!r} is unknown; use one of {', '.join(kinds)}"
        case "type" if isinstance(instance, str) and expected in ("number", "integer"):
            return (
                f"config, {where}: {instance!r} is text, not a number; write 1.0e-3, not 1e-3, and give numbers "
                "inside lists or braces in a second --configfile, not by --config"
            )
    return f"config, {where}: {fault.message}; see config/README.md"


def _unknown_key(fault: ValidationError, where: str) -> str:
    schema: Any = fault.schema
    instance: Any = fault.instance
    known = list(schema.get("properties", {}))
    unknown = next(name for name in instance if name not in known)
    near = get_close_matches(str(unknown), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
    return f"config, {where}: unknown key {unknown}; {hint}"


def _references(config: dict[str, Any]) -> Iterator[str]:
    arms, drafters = config["arms"], config["drafters"]
    for name, arm in arms.items():
        for key, known in (("drafter", drafters), ("control", arms), ("twin_of", arms)):
            if key in arm and arm[key] not in known:
                yield f"config, arms.{name}.{key}: {arm[key]!r} is not there; use one of {', '.join(known)}"
    if arms["ar"]["kind"] != "ar":
        yield f"config, arms.ar: kind {arms['ar']['kind']!r}; the baseline arm `ar` must be of kind ar"
    for name in config["timing"]["arms"]:
        if name not in arms:
            yield f"config, timing.arms: {name!r} is no arm; use one of {', '.join(arms)}"
    if "ar" not in config["timing"]["arms"]:
        yield "config, timing.arms: the baseline `ar` is not timed; add it"
    yield from _pairs(config)
    yield from _exact_faults(config)
    yield from _missing_blocks(config)
    yield from _drafter_faults(config)


def _pairs(config: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong between an arm and its drafter."""
    for name, arm in config["arms"].items():
        drafter = config["drafters"].get(arm.get("drafter"))
        if drafter is None:
            continue
        if drafter["kind"] != arm["kind"]:
            other = f"its drafter {arm['drafter']!r} is of kind {drafter['kind']}"
            yield f"config, arms.{name}: kind {arm['kind']!r}, but {other}"
        if not (_is_trained(drafter) or "adapter" in drafter or arm.get("untrained")):
            yield f"config, arms.{name}: its drafter has no steps to train it by; add them, or untrained: true"


def _exact_faults(config: dict[str, Any]) -> Iterator[str]:
    if not config["decode"].get("exact"):
        return
    if "sampling" in config["decode"]:
        yield "config, decode.exact: only greedy decoding has one right answer; leave exact or sampling out"
    if config["runtime"]["dtype"] != "float32":
        yield "config, decode.exact: needs runtime.dtype float32; elsewhere most rows are near-ties"


def _is_trained(drafter: dict[str, Any]) -> bool:
    return "steps" in drafter


def _missing_blocks(config: dict[str, Any]) -> Iterator[str]:
    """What only training reads may be left out when every drafter is published."""
    trained = next((name for name, drafter in config["drafters"].items() if _is_trained(drafter)), None)
    needed = {name: f"drafters.{trained}" for name in TRAINING} if trained else {}
    if config["target"]["kind"] == "tiny":
        needed["corpus"] = "target"
    for name, reader in needed.items():
        if name not in config:
            yield f"config, the top level: {name} missing, and {reader} is trained; see config/README.md"


def _drafter_faults(config: dict[str, Any]) -> Iterator[str]:
    windows = config.get("windows", {})
    for name, drafter in config["drafters"].items():
        if not _is_trained(drafter):
            continue
        yield from _shape_faults(name, drafter) if "shape" in drafter else ()
        widest = slots(drafter)
        room = windows["length"] - widest - ("shape" in drafter)  # a drafter that hears taps needs a token before it
        if drafter["anchors"] == "end":
            if room < 3:
                yield f"config, drafters.{name}.k: a block of {widest} does not fit a window; lower it"
        elif drafter["anchors"] > room:
            most = f"use at most {max(room, 0)}"
            yield f"config, drafters.{name}.anchors: {drafter['anchors']} do not fit a window; {most}"
        for split in ("train", "validation"):
            if drafter["batch"] > windows[split]:
                yield f"config, drafters.{name}.batch: more than the {windows[split]} {split} windows; lower it"


def slots(drafter: dict[str, Any]) -> int:
    """Return the most tokens that a training block of a drafter is taught."""
    if "shape" in drafter:
        return drafter["shape"]["block"] - (drafter["kind"] != "dspark")
    return max(drafter["k"], *(stage["k"] for stage in drafter.get("stages", ())), 0)


def _shape_faults(name: str, drafter: dict[str, Any]) -> Iterator[str]:
    shape, where = drafter["shape"], f"config, drafters.{name}"
    if "confidence" in drafter["loss"] and not shape.get("enable_confidence_head"):
        yield f"{where}.loss: confidence is weighed, but the shape has no confidence head; enable_confidence_head: true"
    if not set(drafter["loss"]) - {"confidence"}:
        yield f"{where}.loss: nothing teaches the tokens; add ce, kl, tv or lk"
    if {"gamma", "pace"} <= set(drafter):
        yield f"{where}: gamma and pace both weigh the slots; keep one"
    if long := [stage["block"] for stage in drafter.get("stages", ()) if stage["block"] > shape["block"]]:
        yield f"{where}.stages: a block of {long[0]} is longer than the shape's {shape['block']}; lower it"
