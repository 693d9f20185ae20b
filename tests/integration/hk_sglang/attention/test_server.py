"""Which backends HK wraps: by the server's flags and its platform, and beside one for decode."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hk_sglang.attention.install import register_attention
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention import batch
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server, is_wrapped


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
