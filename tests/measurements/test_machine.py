"""The name of the processor, by which measurements are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend import machine
from hk_backend.measurements.machine import this_machine

ZEN_3, ZEN_4 = (
    f"""processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: {model}
model name\t: AMD EPYC

processor\t: 1
model name\t: another
"""
    for model in (1, 17)
)
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU part\t: 0xd40\n"


def test_processors_whose_name_is_hidden_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual machines call every one of AMD's servers "AMD EPYC"."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    found = []
    for text in (ZEN_3, ZEN_4):
        machine.CPUINFO.write_text(text)
        found.append(this_machine("cpu:avx2").processor)
    assert found == ["AMD EPYC (family 25, model 1)", "AMD EPYC (family 25, model 17)"]


@pytest.mark.parametrize("text", [ARM, None])
def test_a_processor_without_a_family(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine.platform, "processor", lambda: "aarch64")
    if text is not None:
        machine.CPUINFO.write_text(text)
    assert machine.cpu_model() == "aarch64"
