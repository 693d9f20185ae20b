"""Unquantised layers and the LM head: packed, released, reloaded, or left with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
)
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.gpu_worker import Worker

from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_vllm import linear_layers
from tests.integration.hk_vllm.linear_layers import load, reload
from tests.integration.shared.linear.devices import in_dtypes, on_devices
from tests.integration.shared.linear.layers import (
    K,
    assert_computes,
    left,
    loaded,
    unloaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


# -- served


@in_dtypes
def test_an_lm_head_keeps_its_table(
    device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM reads it, and a tied one is the embedding's."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", dtype)
    with set_default_torch_dtype(dtype):
        head = ParallelLMHead(128, K, prefix="lm_head")
    head.weight_loader(head.weight, values((128, K), dtype))
    head.quant_method.process_weights_after_loading(head)
    assert is_attached(head)
    assert torch.equal(head.weight, values((128, K), dtype))
    assert_computes(head, values((128, K), dtype))


# -- weights that arrive again, or not


@on_devices
def test_a_layer_that_slept(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At level 2 all memory is lost: vLLM keeps a model's buffers on the host, packed weights among
    them, and gives them back; a reload then finds its place."""
    layer = loaded(linear_layers)
    address = layer.hk_data.data_ptr()
    worker = sleeper(layer, monkeypatch)
    Worker.sleep(worker, 2)
    with pytest.raises(AssertionError):
        assert_computes(layer, torch.cat(weights()))
    Worker.wake_up(worker)
    assert_computes(layer, torch.cat(weights()))
    reload(layer, {"weight": weights(seed=5)})
    assert layer.hk_data.data_ptr() == address
    assert_computes(layer, torch.cat(weights(seed=5)))


def sleeper(layer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker whose model is `layer`, on a GPU whose memory is lost in its sleep."""

    def lose(level: int) -> None:
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.zero_()

    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (0, 0))
    backend = SimpleNamespace(suspend=lose, resume=lambda tags: None)
    return SimpleNamespace(
        model_runner=SimpleNamespace(model=layer),
        sleep_mode_backend=backend,
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(enable_nccl_comm_suspend=False)),
        get_draft_model=lambda: None,
        synchronize_device=lambda: None,
        _save_sleep_parameters=lambda model: None,
        _sleep_saved_parameters={},
        _sleep_saved_draft_buffers={},
    )


def test_sleep_mode_cannot_reach_a_layer_on_a_cpu() -> None:
    """vLLM has none there: nothing takes weights away."""
    assert current_platform.is_cpu()
    assert not current_platform.is_sleep_mode_available()


# -- left to vLLM


def test_latent_attention() -> None:
    layer = unloaded(linear_layers)
    layer._cpu_skip_gemm_dispatch = True
    load(layer, {"weight": weights()})
    assert left(linear_layers, layer) == "latent attention reads the weight itself"
    assert torch.equal(layer.weight, torch.cat(weights()))


def test_a_linear_backend_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_current_vllm_config().kernel_config, "linear_backend", "torch")
    layer = loaded(linear_layers)
    assert left(linear_layers, layer) == "--linear-backend torch"


def test_batch_invariance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    layer = loaded(linear_layers)
    assert left(linear_layers, layer) == "VLLM_BATCH_INVARIANT: not proven for HK"
