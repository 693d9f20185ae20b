"""Which backends HK wraps: by the server's flags and its platform, and beside one for decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.install import register_attention
from hk_sglang.resolution import take_choice
from sglang.srt.arg_groups.overrides import get_default_attn_backend, resolving_view
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_executor.model_runner_components import attention_backend_setup
from sglang.srt.platforms import current_platform
from sglang.srt.runtime_context import override_platform
from sglang.srt.server_args import ServerArgs

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention import batch
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server, is_wrapped
from tests.integration.shared.attention.rows import DECODE


def with_flags(**flags: Any) -> dict[str, Any]:
    """A runner whose server got these flags."""
    given = {"prefill_attention_backend": None, "attention_backend": None}
    return {"server_args": SimpleNamespace(**{**given, **flags})}


def said(caplog: Any) -> str:
    (line,) = [r.getMessage() for r in caplog.records if "hk_backend" in r.getMessage()]
    return str(line)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"attention_backend": "hk"},
        {"prefill_attention_backend": "hk"},
        {"prefill_attention_backend": "hk", "attention_backend": "torch_native"},
    ],
    ids=str,
)
def test_hk(counters: RouteCounters, caplog: Any, flags: dict[str, str]) -> None:
    """With no flag, and with each that names it; said in one line. The parent's class and state
    stay; registering once more changes nothing."""
    before = dict(batch.ATTENTION_BACKENDS)
    assert register_attention() == ""
    assert before == batch.ATTENTION_BACKENDS
    caplog.set_level("INFO")
    server = Server(changes=with_flags(**flags))
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)
    line = said(caplog)
    assert line.startswith("hk_backend: prefill attention of 1 layers is computed by HK on cpu")
    assert line.endswith(", beside torch_native")
    assert isinstance(server.backend, TorchNativeAttnBackend)
    assert type(server.backend).__name__ == "HKTorchNativeAttnBackend"
    assert server.backend.token_to_kv_pool is server.pool


def test_layers_beside_the_modules(counters: RouteCounters, caplog: Any) -> None:
    """SGLang's models that are made by transformers: judged and named at the start as any."""
    caplog.set_level("INFO")
    model = torch.nn.Module()
    model.attention_instances = dict(enumerate(Server(layers=({}, {})).model.layers))
    caplog.clear()
    Server(layers=({}, {}), changes={"model": model})
    start = "hk_backend: prefill attention of 2 layers is computed by HK on cpu"
    assert said(caplog).startswith(start)


@pytest.mark.parametrize(
    "flags",
    [
        {"attention_backend": "torch_native"},
        {"prefill_attention_backend": "torch_native", "attention_backend": "hk"},
    ],
    ids=str,
)
def test_the_users_own_choice(
    counters: RouteCounters, environment: Callable[..., None], caplog: Any, flags: dict[str, str]
) -> None:
    """Goes first: SGLang as it is, and one line that says so."""
    server = Server(changes=with_flags(**flags))
    assert type(server.backend) is TorchNativeAttnBackend
    why = "the server's own choice of torch_native for prefill"
    assert routes.verdict("attention").why == why
    assert said(caplog) == f"hk_backend: SGLang serves attention without HK: {why}"
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match=f"attention would fall back: {why}"):
        Server(changes=with_flags(**flags))


def test_an_earlier_servers_flag(counters: RouteCounters, environment: Callable[..., None]) -> None:
    """Factories that were routed for it serve the next one as SGLang made them."""
    environment(HK_BACKEND="linear")
    assert type(Server().backend) is TorchNativeAttnBackend
    environment(HK_BACKEND="linear,attention")
    assert is_wrapped(Server().backend)


@pytest.mark.parametrize("name", ["aiter", "triton", "intel_amx"])
def test_every_parent(counters: RouteCounters, stand_ins: None, name: str) -> None:
    """What SGLang chooses by itself on CPUs and on ROCm."""
    Batch(Server(name=name), MIXED).check()
    assert counters.served == Tally(1, PREFILL)


@pytest.fixture
def rocm(stand_ins: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SGLang as it resolves arguments on ROCm."""
    monkeypatch.setattr(type(current_platform), "is_out_of_tree", lambda self: False)
    with override_platform(is_hip=True, is_hopper_with_cuda_12_3=False, is_sm100=False):
        yield


@pytest.mark.parametrize("flags", [{}, {"attention_backend": "hk"}], ids=str)
def test_the_parent_on_rocm(rocm: None, counters: RouteCounters, flags: dict[str, str]) -> None:
    """With no flag and with `hk`, SGLang's own default becomes the parent: aiter."""
    server_args = ServerArgs(model_path="dummy", **flags)
    take_choice(server_args, lambda given: None)
    assert resolving_view(server_args).attention_backend is None
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]))
    name = get_default_attn_backend(server_args, use_mla_backend=False, model_config=model)
    assert name == "aiter"
    server = Server(name=name, changes={"server_args": server_args}, dtype=torch.bfloat16)
    assert is_wrapped(server.backend)


def test_decode_graphs_are_the_parents(counters: RouteCounters) -> None:
    """Every method of a graph that a parent has is what the wrapper has; HK's are the three that
    it names, none of them within a graph."""
    wrapper = type(Server().backend)
    own = {name for name in vars(wrapper) if callable(getattr(wrapper, name, None))}
    metadata = {"init_forward_metadata", "init_forward_metadata_out_graph"}
    assert own - {"__class__"} == {*metadata, "forward_extend"}


def hybrid(prefill: str, decode: str) -> HybridAttnBackend:
    """SGLang's own pair of two backends, over one runner."""
    server = Server(name=prefill)
    server.runner.decode_attention_backend_str = decode
    server.runner.model_config = SimpleNamespace(
        context_len=256, hf_config=SimpleNamespace(), hf_text_config=SimpleNamespace()
    )
    backends = [
        attention_backend_setup._build_full_attention_backend_from_str(
            model_runner=server.runner, backend_str=name, init_new_workspace=False
        )
        for name in (prefill, decode)
    ]
    server.backend = HybridAttnBackend(server.runner, *backends)
    return server


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_prefill_by_hk_beside_another_decode(
    counters: RouteCounters,
    stand_ins: None,
    monkeypatch: pytest.MonkeyPatch,
    published: Callable[..., None],
    mode: str,
) -> None:
    """SGLang picks by mode; the decode half is the other backend, unwrapped. Verification goes to
    the decode half, which HK never sees, or to the prefill half, whose parent computes."""
    monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", batch.ATTENTION_BACKENDS)
    published(speculative_attention_mode=mode)
    server = hybrid("torch_native", "triton")
    assert is_wrapped(server.backend.prefill_backend)
    assert not is_wrapped(server.backend.decode_backend)
    Batch(server, MIXED).check()
    Batch(server, [DECODE], "DECODE").check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks
    chosen = server.backend._select_backend(ForwardMode.TARGET_VERIFY)
    assert is_wrapped(chosen) == (mode == "prefill")
    Batch(server, MIXED, "TARGET_VERIFY").check()
    assert counters.served.calls == 1
    assert list(counters.fallbacks) == (["speculative verification"] if mode == "prefill" else [])
