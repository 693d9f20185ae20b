"""`hk-backend status`: shows versions, the device, and whether each route is on, or why not."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hk_backend import __version__, machine
from hk_backend.cli.evidence import Evidence, kept_here
from hk_backend.cli.known_engines import ENGINES
from hk_backend.config import ROUTES, Config, ConfigError, read_config, unknown_variables
from hk_backend.terms.verdict import SERVED, Verdict, refused

ENGINE_CHECKS = "hk_backend.engine_checks"
"""Group of the engine plugins' entry points that check an engine.

Each is a function that takes a route's name and returns the `Verdict` on the engine.
"""


@dataclass(frozen=True)
class Status:
    """The behaviour of a server that is started now, in this environment.

    `invalid`: the invalid environment variable, and why it is invalid; nothing is routed then.
    `notes`: other oddities of the environment. `evidence`: who was measured to be faster here.
    """

    versions: dict[str, str | None]
    machine: dict[str, Any]
    device: Verdict
    device_name: str
    routes: dict[str, Verdict]
    invalid: str
    notes: list[str]
    evidence: Evidence

    def as_json(self) -> dict[str, Any]:
        """The status as plain data; a route is `{"on": bool, "why": str}`, `why` it is off."""
        return {
            "versions": self.versions,
            "machine": self.machine,
            "device": {"name": self.device_name, **_on_off(self.device)},
            "routes": {name: _on_off(verdict) for name, verdict in self.routes.items()},
            "notes": self.notes,
            "evidence": self.evidence.as_json(),
        }


def collect() -> Status:
    """Read the environment, load the device and ask each installed engine's plugin."""
    device_name, device = resolve_device()
    return Status(
        versions(),
        {
            "cpu": machine.cpu_model(),
            "cores": machine.usable_cores(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        device,
        device_name,
        {route: route_verdict(route, device) if device_name else device for route in ROUTES},
        "" if device_name else device.why,
        [*unknown_variables(), *unused_isas(device_name, device)],
        kept_here(),
    )


def versions() -> dict[str, str | None]:
    """Version of each package that matters; None: it is not installed."""
    return {
        "hk-backend": __version__,
        "python": platform.python_version(),
        "torch": machine.version_of("torch"),
        **{name: engine.version for name, engine in ENGINES.items()},
    }


def resolve_device() -> tuple[str, Verdict]:
    """The name of the device that `HK_DEVICE` selects here, and whether it can run.

    The name is empty if an environment variable is invalid.
    """
    try:
        wanted = read_config().device
    except ConfigError as error:
        return "", refused(str(error))
    from hk_backend.devices import DeviceError, device_for

    try:
        return device_for(tensor_device()).name, SERVED
    except DeviceError as error:
        return wanted, refused(str(error))
    except ImportError as error:
        return wanted, refused(f"torch cannot be imported: {error}")


def unused_isas(device_name: str, device: Verdict) -> list[str]:
    """Lines that say which instruction sets a CPU device does not use.

    They name the instruction sets that the build lacks. If the processor advertises AMX and the
    device does not use it, they say why.
    """
    if not device or not device_name.startswith("cpu:"):
        return []
    from hk_backend.devices.cpu.isas import left_out, why_not_amx

    why = why_not_amx(device_name.removeprefix("cpu:"))
    amx = f"{device_name} does not use AMX, which the processor advertises: {why}" if why else ""
    return [line for line in (amx, left_out()) if line]


def tensor_device() -> str:
    """The torch device of an engine's tensors on this machine: cuda or cpu."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def route_verdict(route: str, device: Verdict) -> Verdict:
    """Whether `route` would be on: enabled, with a device to run it and an engine to call it."""
    for verdict in (asked_for(route, read_config()), device, device_serves(route)):
        if not verdict:
            return verdict
    engines = engine_verdicts(route)
    if not engines:
        return refused("no supported engine is installed")
    if any(engines.values()):
        return SERVED
    return refused("; ".join(verdict.why for verdict in engines.values()))


def asked_for(route: str, config: Config) -> Verdict:
    """Whether `HK_BACKEND` names `route`."""
    if not config.enabled:
        return refused("not enabled: HK_BACKEND is unset or 0")
    if route not in config.backend:
        return refused(f"not enabled: HK_BACKEND names only {', '.join(sorted(config.backend))}")
    return SERVED


def device_serves(route: str) -> Verdict:
    """Whether this machine's device has any kernels for `route`. The device must be able to run."""
    if route != "linear":
        return SERVED
    import torch

    from hk_backend.ops import LinearRequest, supports

    return supports(LinearRequest(tensor_device(), torch.bfloat16, "bf16", 64, 64))


def engine_verdicts(route: str) -> dict[str, Verdict]:
    """Ask each plugin about `route` in its engine, for the engines that are installed."""
    verdicts = {}
    for check in importlib.metadata.entry_points(group=ENGINE_CHECKS):
        if ENGINES[check.name].version is None:
            continue
        try:
            with _quiet():
                verdict: Verdict = check.load()(route)
        except Exception as error:  # an engine's import can raise anything
            verdict = refused(f"{type(error).__name__}: {error}")
        verdicts[check.name] = verdict if verdict else refused(f"{check.name}: {verdict.why}")
    return verdicts


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence an engine's warnings about missing packages while it is imported."""
    # torch.library logs that it looks for Triton's kernels in vain
    torch_library = logging.getLogger("torch._library")
    level = torch_library.level
    torch_library.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch_library.setLevel(level)


def print_refusals(name: str) -> None:
    """Print the routes that the plugin of engine `name` refuses, as JSON `{route: reason}`.

    Doctor runs this in a fresh interpreter.
    """
    verdicts = {route: engine_verdicts(route).get(name, SERVED) for route in ROUTES}
    print(json.dumps({route: verdict.why for route, verdict in verdicts.items() if not verdict}))


def _on_off(verdict: Verdict) -> dict[str, Any]:
    return {"on": verdict.ok, "why": verdict.why}
