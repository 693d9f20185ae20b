"""The command `hk-backend`: status, doctor, kernels, modelled times, benchmarks and more.

Every command prints for people, or with `--json` one JSON document on standard output and
nothing else there (progress goes to standard error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hk_backend import __version__
from hk_backend.cli.tune import tune
from hk_backend.lab.commands.bench import bench
from hk_backend.lab.commands.kernels import kernels
from hk_backend.lab.commands.run_object import run_object
from hk_backend.lab.commands.time import time
from hk_backend.lab.commands.tune_kernels import tune_kernels
from hk_backend.progress import working
from hk_backend.quantize import options as quantizing
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

if TYPE_CHECKING:
    from hk_backend.cli.status import Status

app = typer.Typer(cls=errors.Group, no_args_is_help=True, add_completion=False)
app.add_typer(bench, name="bench")
app.command()(kernels)
app.command()(time)
app.command("run-object")(run_object)
app.command(context_settings={"allow_interspersed_args": False})(tune)
app.command("tune-kernels")(tune_kernels)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"hk-backend {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
]


@app.callback()
def main(version: Version = False) -> None:
    """HK kernels for vLLM and SGLang."""


@app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show versions, the device, and every route: on, or off and why.

    Exit code 1 if an environment variable is invalid.
    """
    from hk_backend.cli.status import collect

    with working(progress, "asking the engines"):  # they take seconds to import
        found = collect()
    if as_json:
        print_json(found.as_json())
    else:
        _print_status(Console(soft_wrap=True), found)
    raise typer.Exit(1 if found.invalid else 0)


def _print_status(console: Console, found: Status) -> None:
    for name, version in found.versions.items():
        console.print(f"{name:12} {version or '[dim]not installed[/dim]'}")
    console.print(f"{'cpu':12} {found.machine['cpu']}, {found.machine['cores']} cores")
    for line in found.notes:
        console.print(f"[yellow]note[/yellow]         {escape(line)}")
    if found.invalid:
        console.print(f"[red]invalid[/red]      {escape(found.invalid)}")
        return
    why = f"  [red]{escape(found.device.why)}[/red]" if not found.device else ""
    console.print(f"{'device':12} {found.device_name}{why}")
    for route, verdict in found.routes.items():
        who = found.evidence.summary(route)
        on = f"[green]on[/green]  {escape(who)}"
        state = on if verdict else f"[yellow]off[/yellow]  {escape(verdict.why)}"
        console.print(f"{'route':12} {route}: {state}", highlight=False)
    for line in found.evidence.lines():
        console.print(line, highlight=False, markup=False)


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """Show what on this machine would stop a route, and the command that fixes it.

    Exit code 1 if there is a problem.
    """
    from hk_backend.cli.doctor import examine

    with working(progress, "examining this machine") as say:  # engines take seconds to import
        findings, healthy, facts = examine(say)
    problems = [finding for finding in findings if finding.severity == "problem"]
    skipped = {f.check: f.what for f in findings if f.severity == "skipped"}
    findings = [finding for finding in findings if finding.severity != "skipped"]
    if as_json:
        listed = [
            {"check": f.check, "severity": f.severity, "what": f.what, "remedy": f.remedy}
            for f in findings
        ]
        print_json(
            {
                "healthy": not problems,
                "findings": listed,
                "passed": healthy,
                "facts": facts,
                "skipped": skipped,
            }
        )
    else:
        console = Console(soft_wrap=True)
        for check, what in facts.items():
            console.print(f"{check:13} {escape(what)}")
        for finding in findings:
            color = "red" if finding.severity == "problem" else "yellow"
            console.print(f"[{color}]{finding.severity}[/{color}]  {escape(finding.what)}")
            if finding.remedy:
                console.print(f"    {escape(finding.remedy)}")
        console.print(f"[green]fine[/green]     {', '.join(healthy)}")
        for check, why in skipped.items():
            console.print(f"[dim]skipped[/dim]  {check}: {escape(why)}")
    raise typer.Exit(1 if problems else 0)


@app.command()
def quantize(
    model: quantizing.ModelDir,
    out: quantizing.OutDir,
    format: quantizing.FormatOption,
    method: quantizing.MethodOption = None,
    rotation: quantizing.RotationOption = None,
    fold: quantizing.FoldOption = None,
    activations: quantizing.ActivationsOption = quantizing.Activations.quantized,
    ignore: quantizing.Ignore = None,
    head: quantizing.HeadOption = quantizing.Head.kept,
    embedding: quantizing.EmbeddingOption = quantizing.Embedding.kept,
    text: quantizing.Text = None,
    shard_size: quantizing.ShardSize = 2.0,
    as_json: JsonFlag = False,
) -> None:
    """Write a quantised copy of a Llama checkpoint, in the usual convention for its format.

    If interrupted, run the same command to resume. Exit code 1 on failure, with the reason; 130
    after Ctrl-C.
    """
    from hk_backend.config import ConfigError
    from hk_backend.devices.base import DeviceError
    from hk_backend.extras import missing
    from hk_backend.quantize.errors import EXTRA, QuantizeError

    try:
        from hk_backend.quantize import command, report
        from hk_backend.quantize.settings import Settings
    except ModuleNotFoundError as error:
        errors.say(progress, missing(error, "quantize", EXTRA))
        raise typer.Exit(1) from None
    settings = Settings(
        format.value,
        "" if activations is quantizing.Activations.quantized else activations.value,
        list(ignore or []),
        int(shard_size * 1e9),
        method.value if method else "",
        rotation,
        text if method is quantizing.MethodName.gptq else None,
        head.value,
        embedding.value,
        fold.value if fold else "",
    )
    try:
        with errors.in_one_line(progress, QuantizeError, ConfigError, DeviceError):
            job = command.quantize(model, out, settings, text, progress)
    except command.Interrupted as error:
        errors.say(progress, str(error))
        raise typer.Exit(130) from None
    if as_json:
        return print_json(report.as_json(job))
    report.print_report(Console(), job)
    return None


if __name__ == "__main__":
    app()
