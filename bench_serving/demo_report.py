"""Prints the demo's results: routing, speed, what the figures mean, what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench_serving.demo_results import DTYPES, Results
from bench_serving.engines import Engine
from hk_backend.engine.evidence import SLOWER


def print_report(
    found: Results, engine: Engine, prompt_tokens: int, rounds: int, console: Console
) -> None:
    """Print both tables and the lines that explain them.

    Args:
        prompt_tokens: number of tokens of each timed prompt.
        rounds: number of times that each server was timed.
    """
    console.print()
    console.print(_routing(found))
    for line in _left_lines(found, engine.title):
        console.print(escape(line), soft_wrap=True, highlight=False)
    console.print()
    console.print(_speed(found, prompt_tokens, rounds))
    if machine := found.machine:
        where = f"{machine['cpu']}, {machine['cores']} threads, {found.device}"
        versions = ", ".join(
            f"{name} {version}" for name, version in machine["versions"].items() if version
        )
        console.print(f"{where}; {versions}", soft_wrap=True, highlight=False)
    for warning in found.warnings:
        console.print(f"[yellow]Caution: {escape(warning)}[/yellow]", soft_wrap=True)
    for line in (*_fastest_lines(found), *loss_lines(found), *_answer_lines(found)):
        console.print(line, soft_wrap=True, highlight=False)


def _routing(found: Results) -> Table:
    table = Table(title="What HK computed")
    table.add_column("route")
    for column in ("calls", "tokens", "share of tokens"):
        table.add_column(column, justify="right")
    for route, state in found.routes.items():
        if not found.calls[route]:  # the lines below say why
            continue
        counts = (str(found.calls[route]), str(found.tokens[route]))
        table.add_row(route, *counts, f"{state['routed_share']:.1%}")
    return table


def _left_lines(found: Results, engine: str) -> Iterator[str]:
    """Yields lines on the work that the engine computed, one for each reason.

    Layers that the engine was measured to be faster at are grouped by operator and dtype.
    """
    left = [(why, tally["calls"], "calls") for why, tally in found.fallbacks.items()]
    left += [(why, layers, "layers") for why, layers in found.layers_left.items()]
    faster: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for why, count, what in left:
        if why.startswith(SLOWER):
            kind = why.removeprefix(f"{SLOWER}: ")
            operator, dtype, rest = kind.split(" ", 2)
            group = (f"{operator} {dtype.rstrip(',')}", what)
            faster.setdefault(group, []).append((rest, count))
        else:
            yield f"By {engine}, {count} {what}: {why}"
    if faster:
        yield f"By {engine}, which was measured to be faster at them (hk-backend status has all):"
    for (operator_and_dtype, what), kinds in faster.items():
        total = sum(count for _, count in kinds)
        yield f"  {operator_and_dtype}, {total} {what}, such as of {kinds[0][0]}"


def _speed(found: Results, prompt_tokens: int, rounds: int) -> Table:
    table = Table(
        title=f"One prompt of {prompt_tokens} tokens and its answer, medians of {rounds} rounds"
    )
    for column in ("dtype", "", "stock", "HK", "HK's gain"):
        table.add_column(column, justify="left" if column in ("dtype", "") else "right")
    for name, dtype in DTYPES.items():
        stock, hk = (found.ttft_ms[backend][name] for backend in ("stock", "hk"))
        times = (f"{stock:.0f} ms", f"{hk:.0f} ms")
        table.add_row(dtype, "time to first token", *times, _ratio(stock / hk))
        stock, hk = (found.prefill_tok_s[backend][name] for backend in ("stock", "hk"))
        table.add_row("", "prefill, tokens/s", f"{stock:.0f}", f"{hk:.0f}", _ratio(hk / stock))
        stock, hk = (found.tpot_ms[backend][name] for backend in ("stock", "hk"))
        times = (f"{stock:.1f} ms", f"{hk:.1f} ms")
        table.add_row("", "time per output token", *times, _ratio(stock / hk))
    (stock_dtype, stock), (hk_dtype, hk) = (fastest(found, b) for b in ("stock", "hk"))
    table.add_section()
    table.add_row(
        "fastest",
        "prefill, tokens/s",
        f"{stock:.0f} ({stock_dtype})",
        f"{hk:.0f} ({hk_dtype})",
        _ratio(hk / stock),
    )
    return table


def fastest(found: Results, backend: str) -> tuple[str, float]:
    """The dtype in which `backend` is fastest, and its prompt tokens per second."""
    rates = found.prefill_tok_s[backend]
    name = max(rates, key=rates.__getitem__)
    return DTYPES[name], rates[name]


def _fastest_lines(found: Results) -> Iterator[str]:
    """Yields a line that compares both servers, each in its fastest dtype."""
    (stock_dtype, stock), (hk_dtype, hk) = (fastest(found, b) for b in ("stock", "hk"))
    said = f"Each in its fastest dtype, HK ({hk_dtype}) runs at {hk / stock:.2f} of stock's speed"
    yield f"{said} ({stock_dtype})."


def loss_lines(found: Results) -> Iterator[str]:
    """Yields a line for each dtype and phase in which HK is slower, with a reason if it shows."""
    for name, dtype in DTYPES.items():
        prefill = found.prefill_tok_s["hk"][name] / found.prefill_tok_s["stock"][name]
        decode = found.tpot_ms["stock"][name] / found.tpot_ms["hk"][name]
        taken = found.shares.get(name, {})
        served = max((taken[route] for route in taken if route != "decode"), default=0.0)
        yield from _loss_line(f"{dtype}, prefill", prefill, found.spread.get(name, 0.0), served)
        spread = found.decode_spread.get(name, 0.0)
        yield from _loss_line(f"{dtype}, decode", decode, spread, max(taken.values(), default=0.0))


def _loss_line(phase: str, ratio: float, spread: float, served: float) -> Iterator[str]:
    """Yields why HK has `ratio` of stock's speed, if that is a loss.

    Args:
        spread: how far the rounds differ.
        served: the largest share that HK computed in one of its routes.
    """
    if ratio >= 1:
        return
    head = f"{phase}, {ratio:.2f}x:"
    if 1 - ratio <= spread:
        yield f"{head} no loss that this run can tell; its rounds differ by {spread:.0%}."
    elif served < 0.5:
        yield f"{head} most layers are the engine's own here; HK's bookkeeping is on top."
    else:
        yield (
            f"{head} a loss. HK took the layers at which it was faster while the model loaded; "
            "whole steps are slower. On an idle machine hk-backend tune measures again."
        )


def _answer_lines(found: Results) -> Iterator[str]:
    same = "equal" if found.tokens_equal else "[red]different[/red]"
    difference = found.max_logprob_diff
    shown = "not a number" if difference is None else f"{difference:.1e}"
    yield (
        f"Greedy tokens of stock and HK: float32 {same} (they must be), largest difference of a "
        f"log-probability {shown}"
    )
    if "bf16" in found.same_answers:
        yield (
            f"  bfloat16: {found.same_answers['bf16']} of {len(found.answers)} answers are equal; "
            "rounding to 8 bits may change a token"
        )


def next_steps(engine: Engine, model: str) -> list[str]:
    """Lines on what to do after the demo; commands in them can be pasted."""
    if engine.name != "vllm":
        return ["Next: docs/sglang.md says how to serve your own model."]
    return [
        "Next, serve it yourself (README.md has more):",
        "  source .venv/bin/activate",
        f"  HK_BACKEND=1 python -m {engine.server} --model {model} --kv-cache-memory-bytes 1G",
    ]


def _ratio(value: float) -> str:
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}x[/]"
