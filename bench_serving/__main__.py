"""`python -m bench_serving demo | serve | perplexity | kernels`, from a checkout."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hk_backend.config import ConfigError
from hk_backend.extras import missing
from hk_backend.lab import options
from hk_backend.terminal import errors

if TYPE_CHECKING:
    from bench_serving.candidates import Candidate
    from bench_serving.engines import Engine
    from hk_backend.lab.commands.benchmark import TimedSweep

app = typer.Typer(
    cls=errors.Group,
    no_args_is_help=True,
    add_completion=False,
    help="Serving and kernel benchmarks.",
)
console = Console()
progress = Console(stderr=True)
BACKENDS_HELP = (
    "stock, hk, llama.cpp; stock:float32 and hk:bfloat16:hk_fp8 set --dtype and --quantization; "
    "llama.cpp:auto:q8_0 and q4_0 are llama.cpp's own."
)


class EngineName(str, Enum):
    """Values of `--engine`: see `bench_serving.engines`."""

    vllm = "vllm"
    sglang = "sglang"


EngineOption = Annotated[
    EngineName, typer.Option(help="Engine whose server to run; must be installed.")
]


@app.command()
def demo(
    engine: EngineOption = EngineName.vllm,
    models: Annotated[Path, typer.Option(help="Where the checkpoint is kept.")] = Path("models"),
    results: Annotated[Path, typer.Option(help="Where the results go.")] = Path("results"),
    prompt_tokens: Annotated[int, typer.Option(min=16, max=1900)] = 1024,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Serve SmolLM2 with the stock engine and with HK; compare answers and speed."""
    from bench_serving import demo as suite
    from bench_serving.engines import ENGINES

    served = _installed(ENGINES[engine.value])
    with _errors_in_words():
        failures = suite.run(served, models, results, prompt_tokens, rounds, console)
    raise typer.Exit(1 if failures else 0)


@app.command()
def serve(
    model: Annotated[Path, typer.Option(exists=True, file_okay=False, help="A checkpoint.")],
    engine: EngineOption = EngineName.vllm,
    backends: Annotated[str, typer.Option(help=BACKENDS_HELP)] = "stock,hk",
    dtype: Annotated[str, typer.Option(help="As the engine's --dtype.")] = "auto",
    input_len: Annotated[str, typer.Option(help="Tokens of a prompt.")] = "512",
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 32,
    concurrency: Annotated[str, typer.Option(help="Requests in flight.")] = "1,2,4",
    prompts: Annotated[int, typer.Option(min=1, help="Requests in a run.")] = 8,
    rounds: options.Rounds = 3,
    server_args: Annotated[str, typer.Option(help="Additional server arguments, in quotes.")] = "",
    isa: options.IsaLimit = None,
    out: Annotated[Path, typer.Option(help="Where the results go.")] = Path("results/serve"),
) -> None:
    """Benchmark an engine's server with its own client, alternating between backends."""
    _need_plots()
    from bench_serving import serve as suite
    from bench_serving.engines import ENGINES
    from bench_serving.plan import ServingPlan
    from bench_serving.plots import plot_serving
    from bench_serving.points import table, title
    from hk_backend.lab.bench import settings
    from hk_backend.lab.options import parse_numbers

    plan = ServingPlan(
        _installed(ENGINES[engine.value]),
        model,
        _candidates(backends),
        dtype,
        parse_numbers(input_len, "--input-len"),
        output_len,
        parse_numbers(concurrency, "--concurrency"),
        prompts,
        rounds,
        shlex.split(server_args),
    )
    settings.limit_isa(isa)
    with _errors_in_words():
        points, named = suite.measure(plan, out, _tell)
    plot_serving(points, title(named), out / "serve")
    console.print(table(points), markup=False, soft_wrap=True)
    console.print(f"written: {out}/serve.json, serve.md, serve.png, serve.svg")
    raise typer.Exit(1 if any(point.error for point in points) else 0)


@app.command()
def perplexity(
    models: Annotated[
        list[Path],
        typer.Argument(exists=True, file_okay=False, help="Checkpoints; ratios are to the first."),
    ],
    text: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="UTF-8 text.")],
    skip: Annotated[int, typer.Option(min=0, help="Tokens left out, such as gptq's.")] = 0,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens measured after them.")] = 51200,
    engine: EngineOption = EngineName.vllm,
    backends: Annotated[str, typer.Option(help=BACKENDS_HELP)] = "hk",
    dtype: Annotated[str, typer.Option(help="As the engine's --dtype.")] = "bfloat16",
    server_args: Annotated[str, typer.Option(help="Additional server arguments, in quotes.")] = "",
    out: Annotated[Path, typer.Option(help="Where the results go.")] = Path("results/perplexity"),
) -> None:
    """Measure checkpoints' perplexity on a text through an engine's server."""
    from bench_serving import perplexity as suite
    from bench_serving.engines import ENGINES

    candidates = _candidates(backends)
    if any(candidate.is_llama_cpp for candidate in candidates):
        raise typer.BadParameter("--backends: perplexity is measured of stock and hk")
    plan = suite.PerplexityPlan(
        _installed(ENGINES[engine.value]),
        models,
        candidates,
        dtype,
        text,
        skip,
        tokens,
        shlex.split(server_args),
    )
    with _errors_in_words():
        rows = suite.measure(plan, out, _tell)
    console.print(suite.table(rows), markup=False, soft_wrap=True)
    console.print(f"written: {out}/perplexity.json, perplexity.md")


@app.command()
def kernels(
    context: typer.Context,
    modelled: Annotated[
        bool, typer.Option("--modelled", help="Our GPU kernels by a model, beside others' figures.")
    ] = False,
    cases: Annotated[
        str,
        typer.Option(
            help="Of --modelled, by words of their names: 'd128 causal,gemm n4096'; linear: the "
            "table of linear layers; decode: decode attention; goals: what nobody publishes."
        ),
    ] = "",
    into: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Of --modelled: the document that has its tables."
        ),
    ] = None,
    operators: Annotated[str, typer.Option(help="Any of attention, linear.")] = "attention,linear",
    lengths: options.Lengths = "512,1024,2048,4096",
    head_sizes: options.HeadSizes = "64,128",
    heads: options.Heads = "9/3,32/8",
    dtypes: options.Dtypes = "bf16,fp32",
    layouts: options.Layouts = "all",
    block_sizes: options.BlockSizes = "16,128",
    layers: options.Layers = "all",
    tokens: options.Tokens = "1,4,16,256,1024",
    formats: options.Formats = "bf16,fp8_e4m3fn,mxfp8,mxfp4",
    weight_only: options.WeightOnly = False,
    rounds: options.Rounds = 7,
    threads: options.Threads = 0,
    isa: options.IsaLimit = None,
    out: Annotated[Path, typer.Option(help="Where the results go.")] = Path("results/kernels"),
) -> None:
    """Compare the operators with torch's; write JSON, Markdown and plots."""
    _need_plots()
    if modelled:
        with_it = {"context", "modelled", "cases", "into", "threads", "out"}
        _refuse(context, context.params.keys() - with_it, "not with --modelled")
        _model_kernels(cases, threads, out, into)
    _refuse(context, ("cases", "into"), "only with --modelled")
    from bench_serving import kernels as suite
    from hk_backend.devices import DeviceError
    from hk_backend.lab.bench import settings
    from hk_backend.lab.bench.attention.sweep import AttentionSweep
    from hk_backend.lab.bench.linear.sweep import LinearSweep
    from hk_backend.lab.options import parse_names

    sweeps: dict[str, TimedSweep] = {
        "attention": AttentionSweep.parse(
            lengths, head_sizes, heads, dtypes, layouts, block_sizes, rounds
        ),
        "linear": LinearSweep.parse(layers, tokens, formats, weight_only, rounds),
    }
    chosen = parse_names(operators, list(sweeps), "--operators")
    settings.limit_isa(isa)
    with errors.in_one_line(console, ConfigError, DeviceError):
        settings.check_device()
    settings.use_threads(threads)
    failed = False
    for name in chosen:
        rows = suite.measure(suite.OPERATORS[name], sweeps[name], out, _tell)
        console.print((out / f"{name}.md").read_text(), markup=False, soft_wrap=True)
        console.print(f"written: {out}/{name}.json, {name}.md, {name}.png, {name}.svg")
        failed = failed or any(row.error for row in rows)
    raise typer.Exit(1 if failed else 0)


def _model_kernels(cases: str, workers: int, out: Path, into: Path | None) -> None:
    """Model GPU kernels and linear layers, write the results and end the command."""
    from bench_serving import (
        modelled,
        modelled_decode,
        modelled_document,
        modelled_goals,
        modelled_linear,
    )
    from bench_serving import modelled_report as report
    from hk_backend.kernels.catalogue import catalogue
    from hk_backend.lab import document

    kernels = catalogue(modelled.ARCH)
    words = [part.strip() for part in cases.split(",")]
    of_tables = (modelled_linear.WORD, modelled_goals.WORD, modelled_decode.WORD)
    others = ",".join(part for part in words if part not in of_tables)
    workers = workers or len(os.sched_getaffinity(0))
    failed = False
    try:
        chosen = modelled.cases(kernels, others) if others or not cases else []
    except modelled.CaseError as error:
        raise typer.BadParameter(f"--cases: {error}") from None
    with errors.in_one_line(console, document.DocumentError):
        if chosen:
            rows = report.model(kernels, chosen, workers, out, _tell_aside)
            console.print((out / "modelled.md").read_text(), markup=False, soft_wrap=True)
            console.print(f"written: {out}/modelled.json, modelled.md, modelled.png, modelled.svg")
            failed = any(row.error for row in rows)
            if into:
                text = modelled_document.kernels_text(rows)
                document.put_into(into, modelled_document.KERNELS, text)
        if not cases or modelled_linear.WORD in words:
            table = modelled_linear.model(kernels, workers, out, _tell_aside)
            console.print((out / "modelled_linear.md").read_text(), markup=False, soft_wrap=True)
            console.print(f"written: {out}/modelled_linear.json, modelled_linear.md")
            failed = failed or any(row.error for row in table)
            if into:
                text = modelled_document.linear_text(table)
                document.put_into(into, modelled_document.LINEAR, text)
        for tables in (modelled_decode, modelled_goals):
            if not cases or tables.WORD in words:
                text = tables.model(kernels, workers, out, _tell_aside)
                console.print(text, markup=False, soft_wrap=True)
                console.print(f"written: {out}/modelled_{tables.WORD}.md")
                if into:
                    document.put_into(into, tables.MARKS, text)
    raise typer.Exit(1 if failed else 0)


def _refuse(context: typer.Context, names: Collection[str], why: str) -> None:
    """Raise `typer.BadParameter` for any of these options that is on the command line."""
    for name in names:
        if options.is_given(context, name):
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}")


def _candidates(backends: str) -> list[Candidate]:
    from bench_serving.candidates import Candidate

    try:
        return [Candidate.parse(name.strip()) for name in backends.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"--backends: {error}") from None


def _installed(engine: Engine) -> Engine:
    if engine.version is None:
        raise typer.BadParameter(f"--engine {engine.name}: not installed for {sys.executable}")
    return engine


def _need_plots() -> None:
    """End the command with one line if matplotlib is missing, as in the demo's environment."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        errors.say(progress, missing(error, "plots", "bench"))
        raise typer.Exit(1) from None


def _tell(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _tell_aside(line: str) -> None:
    progress.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """Print an expected failure as one message, and end the command with exit code 1."""
    from bench_serving.demo import DemoError
    from bench_serving.llamacpp.errors import ConvertError
    from bench_serving.perplexity import PlanError
    from bench_serving.server import ServerError
    from bench_serving.smollm2 import FetchError
    from hk_backend.quantize.errors import QuantizeError

    try:
        yield
    except (
        ConvertError,
        DemoError,
        FetchError,
        QuantizeError,
        ServerError,
        PlanError,
    ) as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print("interrupted: the servers are down, run it again at any time", style="red")
        raise typer.Exit(130) from None


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # unwinds, so that servers are ended


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGHUP, _exit_on_signal)
    app(prog_name="python -m bench_serving")
