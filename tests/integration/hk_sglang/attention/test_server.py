"""Which backends HK wraps: by the server's flags, its platform and its configuration."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.install import register_attention
from hk_sglang.attention.server import refuse_server
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.cuda_graph_config import Backend, CudaGraphConfig, PhaseConfig
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_executor.model_runner_components import attention_backend_setup

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.rows import DECODE


def is_wrapped(backend: Any) -> bool:
    return hasattr(backend, "hk")


def with_flags(**flags: Any) -> dict[str, Any]:
    """A runner whose server got these flags."""
    given = {"prefill_attention_backend": None, "attention_backend": None}
    return {"server_args": SimpleNamespace(**{**given, **flags})}


@pytest.fixture
def stand_ins(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_native under the names of backends that need a GPU or a kernel package."""
    from tests.integration.hk_sglang.attention import batch

    stock = batch.ATTENTION_BACKENDS["torch_native"].hk_original
    for name in ("aiter", "triton", "intel_amx", "flex_attention", "dsa"):
        monkeypatch.setitem(batch.ATTENTION_BACKENDS, name, stock)
    assert register_attention() == ""


# -- flags


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
    """With no flag, and with each that names it; said in one line."""
    caplog.set_level("INFO")
    server = Server(changes=with_flags(**flags))
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)
    (line,) = [r.getMessage() for r in caplog.records if "hk_backend" in r.getMessage()]
    assert line.startswith("hk_backend: prefill attention of 1 layers is computed by HK on cpu")
    assert line.endswith(", beside torch_native")


def test_layers_beside_the_modules(counters: RouteCounters, caplog: Any) -> None:
    """SGLang's models that are made by transformers: judged and named at the start as any."""
    caplog.set_level("INFO")
    model = torch.nn.Module()
    model.attention_instances = dict(enumerate(Server(layers=({}, {})).model.layers))
    caplog.clear()
    Server(layers=({}, {}), changes={"model": model})
    (line,) = [r.getMessage() for r in caplog.records if "hk_backend" in r.getMessage()]
    assert line.startswith("hk_backend: prefill attention of 2 layers is computed by HK on cpu")


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
    (line,) = [r.getMessage() for r in caplog.records if "hk_backend" in r.getMessage()]
    assert line == f"hk_backend: SGLang serves attention without HK: {why}"
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match=f"attention would fall back: {why}"):
        Server(changes=with_flags(**flags))


def test_an_earlier_servers_flag(counters: RouteCounters, environment: Callable[..., None]) -> None:
    """Factories that were routed for it serve the next one as SGLang made them."""
    environment(HK_BACKEND="linear")
    assert type(Server().backend) is TorchNativeAttnBackend
    environment(HK_BACKEND="linear,attention")
    assert is_wrapped(Server().backend)


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


@pytest.fixture
def registry(stand_ins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The routed factories where SGLang's runner looks for them."""
    from tests.integration.hk_sglang.attention import batch

    monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", batch.ATTENTION_BACKENDS)


def test_prefill_by_hk_beside_another_decode(counters: RouteCounters, registry: None) -> None:
    """SGLang picks by mode; the decode half is the other backend, unwrapped."""
    server = hybrid("torch_native", "triton")
    assert is_wrapped(server.backend.prefill_backend)
    assert not is_wrapped(server.backend.decode_backend)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)
    Batch(server, [DECODE], "DECODE").check()
    assert counters.served.calls == 1
    assert not counters.fallbacks


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_verification_goes_where_sglang_sends_it(
    counters: RouteCounters, registry: None, published: Callable[..., None], mode: str
) -> None:
    """To the decode half, which HK never sees, or to the prefill half, whose parent computes."""
    published(speculative_attention_mode=mode)
    server = hybrid("torch_native", "triton")
    chosen = server.backend._select_backend(ForwardMode.TARGET_VERIFY)
    assert is_wrapped(chosen) == (mode == "prefill")
    Batch(server, MIXED, "TARGET_VERIFY").check()
    assert not counters.served.calls
    assert list(counters.fallbacks) == (["speculative verification"] if mode == "prefill" else [])


@pytest.mark.parametrize("name", ["aiter", "triton", "intel_amx", "torch_native"])
def test_every_parent(counters: RouteCounters, stand_ins: None, name: str) -> None:
    """What SGLang chooses by itself on CPUs and on ROCm."""
    Batch(Server(name=name), MIXED).check()
    assert counters.served == Tally(1, PREFILL)


# -- what a server does that HK does not understand


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"attn_cp_size": 2, "tp_size": 2}, "context parallelism"),
        ({"dcp_size": 2, "tp_size": 2}, "decode context parallelism"),
        ({"enable_two_batch_overlap": True}, "two-batch overlap"),
        ({"enable_pdmux": True}, "prefill and decode multiplexed on one device"),
        (
            {"enable_deterministic_inference": True},
            "--enable-deterministic-inference: not proven for HK",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_configurations(
    counters: RouteCounters, published: Callable[..., None], fields: dict[str, Any], why: str
) -> None:
    published(**fields)
    assert refusal() == why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_draft_worker": True}, "a draft model"),
        ({"use_mla_backend": True}, "latent attention"),
        ({"kv_index_translator": SimpleNamespace(is_translating=True)}, "a unified memory pool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_runners(
    counters: RouteCounters, changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert refusal(changes=changes) == why


def test_a_draft_model_leaves_the_route_on(counters: RouteCounters) -> None:
    """It shares its process with the model that it drafts for."""
    Server(changes={"is_draft_worker": True})
    assert not routes.is_disabled("attention")
    Batch(Server(), MIXED).check()
    assert counters.served.calls == 1


def test_an_unknown_parent(counters: RouteCounters, stand_ins: None) -> None:
    assert refusal(name="dsa") == "attention backend dsa"


def test_a_parent_that_is_called_otherwise(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", lambda self, batch: None)
    assert "(self, batch), expected (self, q, k, v, layer" in refusal()


@pytest.mark.parametrize("backend", [Backend.FULL, Backend.BREAKABLE])
def test_prefill_in_graphs(
    counters: RouteCounters,
    published: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    """On a GPU, where the user asks for them: they would replay without HK."""
    for prefill, why in ((backend, f"prefill in graphs ({backend})"), (Backend.DISABLED, "")):
        published(cuda_graph_config=CudaGraphConfig(prefill=PhaseConfig(backend=prefill)))
        runner = Server().runner
        runner.device = "cuda"
        assert refuse_server("torch_native", runner) == why


def refusal(**server: Any) -> str:
    """Why a server's prefill is not HK's: the backend is SGLang's own, and the log says so."""
    made = Server(**server)
    assert type(made.backend) is TorchNativeAttnBackend
    why = refuse_server(made.name, made.runner)
    return why or routes.verdict("attention").why


def test_a_broken_installation(
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    """A package of ours that does not import: SGLang's backend as it is, and a reason."""
    import sys

    monkeypatch.setitem(sys.modules, "hk_sglang.attention.backend", None)
    server = Server()
    assert type(server.backend) is TorchNativeAttnBackend
    assert "HK cannot be loaded: ModuleNotFoundError" in routes.verdict("attention").why
    assert "SGLang serves attention without HK: HK cannot be loaded" in caplog.text
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="HK cannot be loaded: ModuleNotFoundError"):
        Server()


def test_a_broken_extension(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """No device: the parent computes, and the reason is the device's."""
    import hk_backend.devices

    def fail(device_type: str) -> Any:
        raise ImportError("_cpu: undefined symbol")

    monkeypatch.setattr(hk_backend.devices, "device_for", fail)
    Batch(Server(), MIXED).check()
    (why,) = counters.fallbacks
    assert why == "ImportError: _cpu: undefined symbol"


def test_registering_twice(counters: RouteCounters) -> None:
    from tests.integration.hk_sglang.attention import batch

    before = dict(batch.ATTENTION_BACKENDS)
    assert register_attention() == ""
    assert before == batch.ATTENTION_BACKENDS


# -- ROCm


@pytest.fixture
def rocm(stand_ins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang as it resolves arguments on ROCm."""
    from sglang.srt.platforms import current_platform
    from sglang.srt.runtime_context import override_platform

    monkeypatch.setattr(type(current_platform), "is_out_of_tree", lambda self: False)
    with override_platform(is_hip=True, is_hopper_with_cuda_12_3=False, is_sm100=False):
        yield


@pytest.mark.parametrize("flags", [{}, {"attention_backend": "hk"}], ids=str)
def test_the_parent_on_rocm(rocm: None, counters: RouteCounters, flags: dict[str, str]) -> None:
    """With no flag and with `hk`, SGLang's own default becomes the parent: aiter."""
    from hk_sglang.resolution import take_choice
    from sglang.srt.arg_groups.overrides import get_default_attn_backend, resolving_view
    from sglang.srt.server_args import ServerArgs

    server_args = ServerArgs(model_path="dummy", **flags)
    take_choice(server_args, lambda given: None)
    assert resolving_view(server_args).attention_backend is None
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]))
    name = get_default_attn_backend(server_args, use_mla_backend=False, model_config=model)
    assert name == "aiter"
    server = Server(name=name, changes={"server_args": server_args}, dtype=torch.bfloat16)
    assert is_wrapped(server.backend)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)


def test_decode_graphs_are_the_parents(counters: RouteCounters) -> None:
    """Every method of a graph that a parent has is what the wrapper has; HK's are the three that
    it names, none of them within a graph."""
    wrapper = type(Server().backend)
    own = {name for name in vars(wrapper) if callable(getattr(wrapper, name, None))}
    assert own - {"__class__"} == {
        "init_forward_metadata",
        "init_forward_metadata_out_graph",
        "forward_extend",
    }
    for name in (
        "init_cuda_graph_state",
        "get_cuda_graph_seq_len_fill_value",
        "init_forward_metadata_in_graph",
        "on_after_cuda_graph_warmup",
        "forward_decode",
        "shared_read_ends",
        "support_triton",
    ):
        assert getattr(wrapper, name) is getattr(TorchNativeAttnBackend, name)
