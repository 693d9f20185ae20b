"""`python -m bench_serving serve`: times an engine's server with its own client, backends in turn.

All servers run side by side, and idle while another one is measured, so that compared measurements
are only seconds apart. A failed run is kept with its reason, and its point then has no number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from bench_serving import counters
from bench_serving.engines import Load
from bench_serving.plan import ServingPlan
from bench_serving.points import METRICS, Point, Run, document, summarize
from bench_serving.server import (
    ROOT,
    Server,
    ServerError,
    differences,
    relevant_environment,
)
from bench_serving.start import start
from hk_backend import machine
from hk_backend.cli import status

CLIENT_SECONDS = 3600
NEEDED = (*METRICS, "total_input_tokens", "total_output_tokens")
"""Numbers that a client's result must have."""


def measure(
    plan: ServingPlan, out: Path, tell: Callable[[str], object]
) -> tuple[list[Point], dict[str, str]]:
    """Run `plan` and write `serve.json` and `serve.md` into `out`; `tell` gets progress messages.

    Returns:
        the points, and the conditions that they depend on (see `facts`).

    Raises:
        ServerError: a server did not start, or the servers differ in more than the backend.
        ConvertError: the checkpoint cannot be converted for llama.cpp.
    """
    runs: list[Run] = []
    warning = machine.busy()
    if warning:
        tell(warning)
    with ExitStack() as stack:
        servers = start(stack, plan, out, tell)
        found = differences(servers.values(), plan.may_differ)
        if found:
            raise ServerError(f"the servers are not comparable: {'; '.join(found)}")
        for turn, input_len, concurrency, candidate in plan.points():
            run = Run(turn, input_len, concurrency, candidate.name)
            run = run_client(servers[candidate.name], plan, run, out)
            runs.append(run)
            failed = fail_other_prompts(runs)  # the run itself, or an earlier one at the same place
            for each in (run, *(other for other in failed if other is not run)):
                tell(f"round {turn + 1}/{plan.rounds}: {_outcome(each)}")
        recorded = {
            name: {"environment": relevant_environment(server), "cores": server.threads()}
            for name, server in servers.items()
        }
    points = summarize(runs)
    report = {
        "plan": {**asdict(plan), "engine": plan.engine.name, "model": plan.model.name},
        "warning": warning,
        "cpu": machine.cpu_model(),
        "versions": versions(plan),
        "servers": recorded,
        "points": [asdict(point) for point in points],
        "runs": [asdict(run) for run in runs],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "serve.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    named = facts(plan, report)
    (out / "serve.md").write_text(document(points, named))
    return points, named


def facts(plan: ServingPlan, report: Mapping[str, Any]) -> dict[str, str]:
    """The conditions that the numbers depend on, in words, for tables and plots."""
    versions = [f"{name} {version}" for name, version in report["versions"].items() if version]
    cores = {name: server["cores"] for name, server in report["servers"].items()}
    threads = ", ".join(dict.fromkeys(cores.values()))
    lens = " and ".join(map(str, plan.input_lens))
    names = {
        beside: ", ".join(each.name for each in plan.candidates if each.is_llama_cpp == beside)
        for beside in (False, True)
    }
    found = {
        "model": f"{plan.model.name} in {plan.dtype}",
        "engine": f"{plan.engine.title}: {names[False]}",
        "beside it": names[True],
        "requests": f"{plan.prompts} prompts of {lens} tokens, {plan.output_len} tokens out",
        "rounds": f"{plan.rounds}, backends in turn",
        "processor": f"{report['cpu']}, {machine.usable_cores()} cores, threads on: {threads}",
        "versions": ", ".join(versions),
        "arguments": " ".join(plan.server_arguments),
        "warning": report["warning"],
    }
    return {name: text for name, text in found.items() if text}


def versions(plan: ServingPlan) -> dict[str, str | None]:
    """The versions that `hk-backend status` shows, and llama.cpp's if it takes part."""
    found = status.versions()
    if any(candidate.is_llama_cpp for candidate in plan.candidates):
        found["xllamacpp"] = machine.version_of("xllamacpp")
    return found


def run_client(server: Server, plan: ServingPlan, run: Run, out: Path) -> Run:
    """Run the engine's client on `server`; store its results in `run`, or why it failed."""
    name = f"{run.backend.replace(':', '-')}-{run.input_len}-{run.concurrency}-{run.turn}.json"
    result = out / "runs" / name
    result.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)  # remove an earlier run's file, in case this one writes none
    arguments = plan.engine.client_arguments(load_of(server, plan, run, result))
    command = [sys.executable, "-m", plan.engine.client, *arguments]
    try:
        server.check_alive()
        before = counters.read(server.url)
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=server.environment,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            check=False,
        )
        if done.returncode:
            run.error = f"the client exited with {done.returncode}: {_last_line(done.stderr)}"
            return run
        measured = plan.engine.read_result(result)
        run.metrics = metrics_of(measured, plan)
        run.prompt_tokens = measured["total_input_tokens"]
        if server.backend == "hk":
            after = counters.read(server.url)
            run.routed_share = counters.share_between(before, after)
            if run.routed_share == 0 and not counters.is_all_left_as_slower(before, after):
                run.fail("HK computed nothing")
    except subprocess.TimeoutExpired:
        run.error = f"the client took longer than {CLIENT_SECONDS} s"
    except (ServerError, httpx.HTTPError, OSError, ValueError) as error:
        run.fail(str(error).partition("\n")[0])
    return run


def fail_other_prompts(runs: Sequence[Run]) -> list[Run]:
    """Fail the runs of llama.cpp that got another number of prompt tokens than the engine.

    Another tokenizer would make it other work. Returns the runs that this call failed.
    """
    engine = {run.place: run for run in runs if run.prompt_tokens and not run.is_llama_cpp}
    found = []
    for run in runs:
        other = engine.get(run.place)
        if not (other and run.is_llama_cpp) or run.error:
            continue
        if run.prompt_tokens != other.prompt_tokens:
            made = f"{run.prompt_tokens} tokens of the prompts, {other.backend}"
            run.fail(f"{run.backend} made {made} {other.prompt_tokens}")
            found.append(run)
    return found


def load_of(server: Server, plan: ServingPlan, run: Run, result: Path) -> Load:
    """The client's load: the same requests for every backend of a round."""
    return Load(
        server.url,
        server.name,
        plan.model.resolve(),
        run.input_len,
        plan.output_len,
        plan.prompts,
        run.concurrency,
        plan.seed(*run.place),
        result.resolve(),
    )


def metrics_of(result: dict[str, Any], plan: ServingPlan) -> dict[str, float]:
    """The numbers in a client's result.

    Raises:
        ValueError: a request was not answered completely, or a number is missing.
    """
    if result.get("completed") != plan.prompts:
        raise ValueError(f"{result.get('completed')} of {plan.prompts} requests were answered")
    missing = [name for name in NEEDED if not isinstance(result.get(name), int | float)]
    if missing:
        raise ValueError(f"the client's result has no {', '.join(missing)}")
    made, wanted = result["total_output_tokens"], plan.prompts * plan.output_len
    if made != wanted:
        raise ValueError(f"{made} tokens were generated of the {wanted} asked for")
    return {name: float(value) for name, value in result.items() if _is_metric(name, value)}


def _is_metric(name: str, value: object) -> bool:
    return isinstance(value, int | float) and name.endswith(("_throughput", "_ms"))


def _outcome(run: Run) -> str:
    """One line on a run: its place, and its results or its error."""
    where = f"{run.backend}, {run.input_len} tokens in, concurrency {run.concurrency}"
    if run.error:
        return f"{where}: FAILED: {run.error}"
    found = (f"{name} {run.metrics[key]:.1f} {unit}" for key, (name, unit) in METRICS.items())
    return f"{where}: {', '.join(found)}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
