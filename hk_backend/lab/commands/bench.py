"""`hk-backend bench NAME`: measures an operator, or the path to a kernel's launch."""

from __future__ import annotations

import typer

from hk_backend.operators import names, part

BENCHES = "lab.commands.benches"

bench = typer.Typer(no_args_is_help=True, help="Measure an operator on this machine.")
for name in names(BENCHES):
    module = part(BENCHES, name)
    assert module is not None
    bench.command(name)(module.command)
