"""Finds what catches one fault: tests of `make test` that can reach it, cheapest first, then the
records of proofs; for what survives, `make prove`'s own checks, slow tests and whole engines."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from tests.models import ROOT
from tests.mutants.fault import Fault, StaleFaultError
from tests.mutants.few_kernels import few_kernels
from tests.mutants.native import BuildFailedError
from tests.mutants.rooms import BY_NAME
from tests.mutants.tree import Outcome, Tree, git
from tests.proof import plugin, records
from tests.proof.source_digest import Definition, reached

LIMIT = 600.0
"""Processor seconds, after which tests that have not ended are ended, and count as failed."""
SLOW_LIMIT = 900.0
KERNELS = 3
"""Number of a source's kernels in which a fault is looked for: the cheapest to prove."""
NOT_SLOW = ("-m", "not slow")
UNRECORDED = ("-m", "not slow and not proof and not engine_proof")
"""A proof whose record a fault makes stale is red before it runs, and says nothing of the fault."""


class Judge:
    """`tree`: the copy with the faults."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.seconds = 0.0
        self.asked = 0

    def judge(self, fault: Fault, slow: bool = False, last: str = "") -> tuple[str, str]:
        """The fault's outcome and its evidence (results.py). `slow`: what `make test` leaves out.
        `last`: the test that caught it before, which is asked first.

        A failure is believed if the same test passes without the fault.
        """
        self.seconds, self.asked = 0.0, 0
        try:
            fault.span((ROOT / fault.file).read_text())
            found = self._few_kernels(fault) if fault.source else None
            if found is None:
                with self.tree.fault(fault):
                    found = self._slow(fault) if slow else self._fast(fault, last)
        except StaleFaultError as error:
            return "stale", str(error)
        except BuildFailedError as error:
            return "stale", f"the compiler refuses it: {error}"
        if found[0] in ("survives", "record") and fault.equivalent:
            return "equivalent", fault.equivalent
        return found

    def _fast(self, fault: Fault, last: str) -> tuple[str, str]:
        room = BY_NAME[fault.room]
        if fault.source:
            return self._kernel(fault)
        asked_first = [[last]] if last.startswith("tests/") else []
        for tests in (*asked_first, room.folders(fault.file)):
            if failed := self._believed(fault, [*tests, *UNRECORDED], room.sglang):
                return "test", failed
        if checks := self._stale_checks(fault):
            return "record", f"records of {len(checks)} checks, {min(checks)} among them"
        return "survives", "" if self.asked else "no test runs it"

    def _believed(
        self,
        fault: Fault,
        arguments: list[str],
        sglang: bool,
        limit: float = LIMIT,
        **variables: str,
    ) -> str:
        """The test that fails with the fault and passes without."""
        failed = self._run(arguments, sglang, limit, **variables).failed
        if failed == "collection":
            with self.tree.without(fault):
                collected = self._run([*arguments, "--collect-only"], sglang, limit, **variables)
            return "" if collected.failed else failed
        if "::" not in failed or failed.startswith("no end"):
            return failed
        test = failed.partition(": ")[2] if failed.startswith("signal") else failed
        with self.tree.without(fault):
            alone = self._run([test], sglang, limit, **variables).failed
        if not alone:
            return failed
        deselected = f"--deselect={test}"
        if deselected in arguments:
            return ""  # it fails whatever is asked for
        others = [each for each in arguments if each != test]
        return self._believed(fault, [*others, deselected], sglang, limit, **variables)

    def _run(self, arguments: list[str], sglang: bool, limit: float, **variables: str) -> Outcome:
        done = self.tree.run(arguments, limit, sglang, variables)
        self.seconds += done.seconds
        self.asked += done.tests
        left = [each for each in arguments if each not in done.gone]
        named = [each for each in left if each.startswith("tests/")]
        if not done.gone or not named or left == arguments:
            return done if not done.gone else Outcome("", done.seconds, 0)
        return self._run(left, sglang, limit, **variables)

    def _stale_checks(self, fault: Fault) -> set[str]:
        """The proofs whose digests change with the fault, though none of their kernels does."""
        parts = fault.file.removesuffix(".py").split("/")
        module = ".".join(parts[1:] if parts[0] == "integration" else parts)
        name = fault.within.partition(".")[0]
        return {check for check, of in definitions().items() if Definition(module, name) in of}

    def _few_kernels(self, fault: Fault) -> tuple[str, str] | None:
        """The outcome if a fault is caught in a few kernels of its source."""
        with self.tree.fault(fault, few_kernels(fault.source)):
            found = self._kernel(fault)
        return found if found[0] == "test" and "::" in found[1] else None

    def _kernel(self, fault: Fault) -> tuple[str, str]:
        """A kernel that has changed has no record: `make test` is red. What counts is whether the
        proof fails, too, which `make prove` would make anew."""
        changed = self._changed_kernels(fault)
        if not changed:
            return "survives", "the same instructions"
        file = records.FOLDER / f"{source_name(fault)}.txt"
        if not file.exists():  # `make test` runs every test of such a kernel
            failed = self._believed(fault, [*of_source(fault), *NOT_SLOW], False, SLOW_LIMIT)
            return ("test", failed) if failed else ("survives", "")
        by_kernel: dict[str, float] = defaultdict(float)
        checks = set()
        for record in records.read_file(file).values():
            checks.add(record.check)
            if record.name in changed:
                by_kernel[record.name] += record.seconds
        names = sorted(by_kernel, key=lambda name: by_kernel[name])[:KERNELS]
        arguments = [*map(node, sorted(checks)), "-k", " or ".join(names)]
        failed = self._believed(fault, arguments, False, SLOW_LIMIT, **{plugin.VARIABLE: ""})
        if failed:
            return "test", f"its records; its proof fails: {failed}"
        return "record", f"its records; proofs of {', '.join(names)} pass"

    def _changed_kernels(self, fault: Fault) -> set[str]:
        """Kernels of the source whose digest is no longer that of their records."""
        known = {key.subject for key in records.read()}
        code = (
            "from hk_backend.kernels import catalogue\n"
            "from tests.proof.kernel_digest import kernel_digest\n"
            "for e in catalogue('gfx950').kernels:\n"
            f"    if e.path.stem == {source_name(fault)!r}: print(e.name, kernel_digest(e))"
        )
        lines = self.tree.python(code).splitlines()
        return {name for name, digest in map(str.split, lines) if digest not in known}

    def _slow(self, fault: Fault) -> tuple[str, str]:
        room = BY_NAME[fault.room]
        if fault.source:
            return self._kernel(fault)
        for check in sorted(self._stale_checks(fault)):
            arguments = [node(check), "-k", cheapest(check)]
            if failed := self._believed(fault, arguments, False, LIMIT, **{plugin.VARIABLE: ""}):
                return "test", f"its records; its proof fails: {failed}"
        for arguments in ([*room.folders(fault.file), "-m", "slow"], list(room.engines)):
            if arguments and (failed := self._believed(fault, arguments, room.sglang, SLOW_LIMIT)):
                return ("prove" if "slow" in arguments else "test"), failed
        return "survives", ""


def source_name(fault: Fault) -> str:
    return fault.source.rpartition("/")[2].removesuffix(".hip")


def of_source(fault: Fault) -> list[str]:
    """Files of tests that are named after the source of a kernel."""
    found = ROOT.glob(f"tests/kernels/test_{source_name(fault)}*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found)


@cache
def definitions() -> dict[str, frozenset[Definition]]:
    """The definitions that each check of a kernel reaches by name. Any change of the product makes
    the records of whole engines stale, which says nothing of one fault."""
    checks = {record.check for record in records.read().values()}
    return {check: reached(*test_of(check)) for check in checks if "/" not in check}


def test_of(check: str) -> tuple[str, str]:
    """The module and the function of a kernel's check, whose record names no folder."""
    file, _, function = check.partition("::")
    kernels, elsewhere = ROOT / f"tests/kernels/{file}.py", ROOT.glob(f"tests/**/{file}.py")
    path = kernels if kernels.exists() else next(elsewhere)
    return ".".join(path.relative_to(ROOT).with_suffix("").parts), function


def node(check: str) -> str:
    """pytest's name of a check."""
    module, function = test_of(check)
    return f"{module.replace('.', '/')}.py::{function}"


@cache
def cheapest(check: str) -> str:
    """The kernel of which this check is the fastest."""
    of = [record for record in records.read().values() if record.check == check]
    return min(of, key=lambda record: record.seconds).name


def commit() -> str:
    """The last one that changed anything but the faults, their results, records and documents."""
    others = (":!tests/mutants", ":!tests/proof/records", ":!docs", ":!*.md")
    return git("log", "-1", "--format=%h", "--abbrev=7", "--", ".", *others)
