"""Backends that HK wraps: the choices of the server's flags, and backends of other plugins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hk_sglang.attention import install
from hk_sglang.attention.install import BUILDER, register_attention
from sglang.srt.layers.attention import attention_registry
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.model_runner_components import attention_backend_setup

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import batch
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server, is_wrapped
from tests.integration.hk_sglang.attention.engine import routed
from tests.integration.shared.attention.rows import DECODE


def with_flags(**flags: Any) -> dict[str, Any]:
    """Describe a runner whose server got these flags."""
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
    """HK wraps the backend without a flag, and with each flag that names HK, and one line says so.

    The parent's class and state stay, and registering HK once more changes nothing.
    """
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


@pytest.mark.parametrize(
    "flags",
    [
        {"attention_backend": "torch_native"},
        {"prefill_attention_backend": "torch_native", "attention_backend": "hk"},
    ],
    ids=str,
)
def test_the_users_own_choice(
    counters: RouteCounters, environment: Environment, caplog: Any, flags: dict[str, str]
) -> None:
    """The user's choice goes first: SGLang stays as it is, and one line says so."""
    server = Server(changes=with_flags(**flags))
    assert type(server.backend) is TorchNativeAttnBackend
    why = "the server's own choice of torch_native for prefill"
    assert routes.verdict("attention").why == why
    assert said(caplog) == f"hk_backend: SGLang serves attention without HK: {why}"
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match=f"attention would fall back: {why}"):
        Server(changes=with_flags(**flags))


def test_an_earlier_servers_flag(counters: RouteCounters, environment: Environment) -> None:
    """Factories that were routed for an earlier server serve the next one unchanged, if it does not
    ask for HK."""
    environment(HK_BACKEND="linear")
    assert type(Server().backend) is TorchNativeAttnBackend
    environment(HK_BACKEND="linear,attention")
    assert is_wrapped(Server().backend)


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_prefill_by_hk_beside_another_decode(
    counters: RouteCounters,
    stand_ins: None,
    monkeypatch: pytest.MonkeyPatch,
    published: Callable[..., None],
    mode: str,
) -> None:
    """SGLang picks a backend by mode, and HK wraps only the prefill half.

    Verification of drafts goes to the decode half, which HK never sees, or to the prefill half.
    There the parent computes it.
    """
    monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", batch.ATTENTION_BACKENDS)
    published(speculative_attention_mode=mode)
    server = Server(name="torch_native")
    server.runner.decode_attention_backend_str = "triton"
    server.runner.model_config = SimpleNamespace(
        context_len=256, hf_config=SimpleNamespace(), hf_text_config=SimpleNamespace()
    )
    backends = [
        attention_backend_setup._build_full_attention_backend_from_str(
            model_runner=server.runner, backend_str=name, init_new_workspace=False
        )
        for name in ("torch_native", "triton")
    ]
    assert list(map(is_wrapped, backends)) == [True, False]
    server.backend = HybridAttnBackend(server.runner, *backends)
    Batch(server, MIXED).check()
    Batch(server, [DECODE], "DECODE").check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks
    Batch(server, MIXED, "TARGET_VERIFY").check()
    assert counters.served.calls == 1
    assert list(counters.fallbacks) == (["speculative verification"] if mode == "prefill" else [])


# -- backends that another plugin registers


NAME = "torch_native"


class Observing(TorchNativeAttnBackend):  # type: ignore[misc]
    calls: ClassVar[list[int]] = []

    def forward_extend(
        self,
        q: Any,
        k: Any,
        v: Any,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **extra: Any,
    ) -> Any:
        self.calls.append(len(q))
        return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **extra)


@pytest.fixture(params=["before-hk", "after-hk"])
def registered(
    request: pytest.FixtureRequest, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], Server]:
    """Register another plugin's factory, before HK or after it; the result makes its server."""
    Observing.calls.clear()

    def both(factory: Any) -> Server:
        monkeypatch.setitem(attention_registry.ATTENTION_BACKENDS, NAME, factory)
        if request.param == "before-hk":
            assert install.register_attention() == ""
        else:
            built = install._build(lambda **_: None)  # SGLang looks the factory up
            assert built is None
            assert callable(getattr(attention_backend_setup, install.BUILDER)), "as it does there"
        return Server()

    return both


def test_one_that_computes(
    registered: Callable[[Any], Server],
    counters: RouteCounters,
    environment: Environment,
    caplog: Any,
) -> None:
    """The other plugin's method sees every step, and the log says why HK computes none."""
    Batch(registered(Observing), MIXED).check()
    assert len(Observing.calls) == 1
    assert counters.served.calls == 0
    why = f"Observing.forward_extend is another plugin's: {__name__}.forward_extend"
    assert f"hk_backend: SGLang serves attention without HK: {why}" in caplog.text
    assert routes.verdict("attention").why == why
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="forward_extend is another plugin's"):
        registered(Observing)


def test_one_around_hk(registered: Callable[[Any], Server], counters: RouteCounters) -> None:
    """A factory may call HK's. The backend that it makes is wrapped once."""
    inner = attention_registry.ATTENTION_BACKENDS[NAME]
    server = registered(partial(inner))
    assert type(server.backend).__mro__[1] is TorchNativeAttnBackend
    Batch(server, MIXED).check()
    assert counters.served.calls == 1


def test_a_factory_that_comes_after_hk_is_routed_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with routed():
        factories = attention_registry.ATTENTION_BACKENDS
        monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", factories)
        attention_registry.register_attention_backend("late")(lambda runner: "built")
        build = getattr(attention_backend_setup, BUILDER)
        runner = SimpleNamespace(prefill_attention_backend_str="other")
        assert build(model_runner=runner, backend_str="late", init_new_workspace=False) == "built"
        assert hasattr(factories["late"], "hk_original")
