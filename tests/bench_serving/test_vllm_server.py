"""What torch tells vLLM of the processor while torch is held to an instruction set."""

from __future__ import annotations

import pytest
import torch

from bench_serving import vllm_server


@pytest.mark.parametrize(
    ("isa", "left"),
    [
        ("avx2", set()),
        ("avx512", {"_is_avx512_supported", "_is_vnni_supported"}),
        ("default", {*vllm_server.AVX512, *vllm_server.AMX}),
        ("", {*vllm_server.AVX512, *vllm_server.AMX}),
    ],
)
def test_nothing_beyond_it_is_found(
    isa: str, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond = (*vllm_server.AVX512, *vllm_server.AMX)
    for name in beyond:
        assert hasattr(torch.cpu, name)
        monkeypatch.setattr(torch.cpu, name, lambda: True)
    vllm_server.hide(isa)
    assert {name for name in beyond if getattr(torch.cpu, name)()} == left
