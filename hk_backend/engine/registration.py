"""Installs the routes that `HK_BACKEND` enables, in one process of an engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from hk_backend.config import COMES_WITH, ROUTES, ConfigError, get_config, unknown_variables
from hk_backend.engine import report
from hk_backend.routing.routes import routes


class RegisterError(RuntimeError):
    """HK_STRICT=1 and the plugin cannot register; the message says why."""


@dataclass(frozen=True)
class Plugin:
    """The plugin of one engine.

    Args:
        engine: name of the engine, for the log.
        package: the plugin's package. Its module `<route>.install` has a function
            `register_<route>` that installs the route, and returns the reason if it fails.
        share: shares the counters between processes; whether this is the engine's first process.
        error: exception that HK_STRICT=1 raises, as an engine that swallows exceptions needs
            another.
    """

    engine: str
    logger: logging.Logger
    package: str
    share: Callable[[], bool]
    error: type[BaseException] = RegisterError

    def register_routes(self) -> None:
        """Installs every enabled route, or logs one line that says why not.

        Raises:
            the plugin's `error`: instead of that line, with HK_STRICT=1.
        """
        logging.getLogger("hk_backend").parent = self.logger  # its handlers write HK's lines, too
        for line in unknown_variables():
            self.logger.warning("hk_backend: %s", line)
        try:
            asked: frozenset[str] = get_config().backend
        except ConfigError as error:
            for route in ROUTES:
                routes.disable(route, str(error))
            self.give_up(str(error))
            return
        installed = asked - COMES_WITH.keys()
        for route in ROUTES:
            if route not in installed:
                continue
            try:
                if self.share():
                    report.at_exit(self.engine, self.logger)
                install = import_module(f"{self.package}.{route}.install")
                why = getattr(install, f"register_{route}")()
            except Exception as error:  # a broken HK installation must not break the engine
                why = f"HK cannot be loaded: {type(error).__name__}: {error}"
            if why:
                for each in asked:
                    if COMES_WITH.get(each, each) == route:
                        routes.disable(each, why)
                self.give_up(why if len(installed) == 1 else f"route {route}: {why}")

    def give_up(self, why: str) -> None:
        """Leaves the engine as it is, and logs why; an error with HK_STRICT=1."""
        if os.environ.get("HK_STRICT", "").strip() == "1":
            raise self.error(f"HK_STRICT=1: {why}") from None
        self.logger.error("hk_backend: %s serves without HK: %s", self.engine, why)
