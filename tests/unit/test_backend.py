"""The back end: probing gives an environment class that `prepare` accepts, and nothing else."""

import json
import sys
from pathlib import Path

import pytest

from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models import backend, blas, doctor

RYZEN = "vendor_id : AuthenticAMD\ncpu family : 23\nmodel : 49\nmodel name : AMD EPYC\n\nvendor_id : x\n"
GRAVITON = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n"
KEYS = ["schema", "platform", "python", "mlx", "mlx_lm", "mlx_library"]
KEYS += ["backend", "chip", "blas", "threads", "dtype"]


@pytest.fixture(scope="module")
def probed() -> tuple[dict, dict]:
    return backend.probe(threads="auto", dtype="float32", backend="cpu")


def test_class_has_its_schema(probed: tuple[dict, dict]) -> None:
    environment, facts = probed
    assert list(environment) == KEYS
    assert environment["threads"] == blas.physical_cores()
    assert (environment["blas"] is not None) == bool(blas.candidates())
    assert json.loads(json.dumps(environment)) == environment
    assert "hostname" not in facts
    assert facts["gflops"] > 0


def test_class_names_no_path(probed: tuple[dict, dict]) -> None:
    assert str(Path(sys.prefix)) not in json.dumps(probed[0])


def test_prepare_accepts_its_own_class(probed: tuple[dict, dict]) -> None:
    import mlx.core as mx

    backend.prepare(probed[0])
    assert mx.default_device() == mx.Device(mx.cpu)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"blas": {"sha256": "0" * 64, "core": "Zen"}}, "no BLAS here has the digest 000000000000"),
        ({"mlx": "0.1"}, "mlx is"),
        ({"python": "2.7"}, "python is"),
    ],
)
def test_another_machine_is_refused(probed: tuple[dict, dict], change: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*snakemake -R environment"):
        backend.prepare({**probed[0], **change})


@pytest.mark.skipif(not blas.candidates(), reason="no OpenBLAS here")
def test_another_kernel_family_is_refused(probed: tuple[dict, dict]) -> None:
    other = {**probed[0], "blas": {**probed[0]["blas"], "core": "Nehalem-not"}}
    with pytest.raises(ConfigError, match="kernels, the class says Nehalem-not"):
        backend.prepare(other)


@pytest.mark.parametrize("threads", [0, -1, "two", "1.5", ""])
def test_bad_thread_counts(threads: str | int) -> None:
    with pytest.raises(ConfigError, match=r"runtime\.threads"):
        backend.thread_count(threads)


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.dtype"):
        backend.probe(threads=1, dtype="float16", backend="cpu")
    with pytest.raises(ConfigError, match=r"runtime\.backend"):
        backend.probe(threads=1, dtype="float32", backend="tpu")


@pytest.mark.skipif(sys.platform != "linux", reason="metal is there")
def test_absent_back_end_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"offers (cpu|cuda)"):
        backend.probe(threads=1, dtype="float32", backend="metal")


@pytest.mark.parametrize(("text", "family"), [(RYZEN, "AuthenticAMD 23/49"), (GRAVITON, "0x41 8/0xd0c")])
def test_chip_family(text: str, family: str) -> None:
    assert backend.cpu_family(text) == family


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is loaded elsewhere")
def test_without_a_blas_it_works_and_says_how_slow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blas, "candidates", list)
    environment, _ = backend.probe(threads=1, dtype="float32", backend="cpu")
    assert environment["blas"] is None
    assert "times slower than NumPy" in capsys.readouterr().err


def test_doctor_renders_and_fails_on_a_failing_check(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [doctor.Check("disk", "1 GiB", False, "free 5 GiB here"), doctor.Check("python", "3.11", True, "no")]
    doctor.render(checks)
    text = capsys.readouterr().out
    assert "free 5 GiB here" in text
    assert "no" not in text.split()


def test_doctor_looks_at_everything() -> None:
    names = {check.name for check in doctor.report()}
    assert {"python", "mlx", "mlx-lm", "snakemake", "free disk", "memory", "device", "BLAS"} <= names
