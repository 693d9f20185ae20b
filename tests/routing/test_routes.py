"""Verdicts, counters, the kill switch and the report."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from hk_backend.routing.routes import Routes
from hk_backend.terms.verdict import refused


def test_counters_are_made_once_per_route() -> None:
    own = Routes()
    assert own.counters("attention") is own.counters("attention")
    assert own.counters("attention") is not own.counters("linear")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: own.counters("new"), range(200)))
    assert len({id(counters) for counters in found}) == 1


def test_a_disabled_route_keeps_its_first_reason() -> None:
    own = Routes()
    assert own.verdict("attention")
    assert not own.is_disabled("attention")
    own.disable("attention", "error exceeds the tolerance")
    own.disable("attention", "something later")
    assert own.is_disabled("attention")
    assert own.verdict("attention") == refused("error exceeds the tolerance")
    assert own.verdict("linear")
    report = own.report()["attention"]
    assert (report["on"], report["why"]) == (False, "error exceeds the tolerance")


def test_report_is_plain_data() -> None:
    own = Routes()
    counters = own.counters("attention")
    assert counters.routed_share() == 1.0
    counters.served.add(30)
    counters.fallbacks["z: last"].add(6)
    counters.fallbacks["a: first"].add(4)
    counters.dummy.add(8)
    counters.captured.add(16)
    counters.layers, counters.layers_left["a reason"] = 5, 2
    counters.checked_calls, counters.max_check_error = 2, 0.25
    counters.unchecked_calls = 3
    own.disable("attention", "because")
    report = own.report()
    assert json.loads(json.dumps(report)) == report
    assert report == {
        "attention": {
            "on": False,
            "why": "because",
            "calls": 1,
            "tokens": 30,
            "routed_share": 0.75,
            "fallbacks": {
                "a: first": {"calls": 1, "tokens": 4},
                "z: last": {"calls": 1, "tokens": 6},
            },
            "layers": 5,
            "layers_left": {"a reason": 2},
            "dummy_calls": 1,
            "dummy_tokens": 8,
            "captured_calls": 1,
            "captured_tokens": 16,
            "checked_calls": 2,
            "unchecked_calls": 3,
            "max_check_error": 0.25,
        }
    }
    assert list(report["attention"]["fallbacks"]) == ["a: first", "z: last"]
