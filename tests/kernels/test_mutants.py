"""Mutants of the attention kernels: the test suite catches every one.

A survivor has one of two causes. Either the kernel does not need the wait, which then goes; or the
emulator or the cases do not see the change, and are then improved.
"""

from __future__ import annotations

from hk_backend.kernels import KernelEntry, catalogue
from tests.kernels import mutants
from tests.kernels.cover import family, proved
from tests.proof.kernel_digest import instructions

IN_BF16 = [entry for entry in family("attention_prefill") if entry.facts["dtype"] == "bf16"]
"""Kernels for bf16. The others equal them except for the dtype of an instruction (a test below)."""
ONE_COPY = "s_waitcnt vmcnt(12): vmcnt 12 -> 13"
STRICTER = {
    # Where 16 bytes of a value's channel lie together, waves without work wait for all copies of a
    # tile of values, and all waves of split_r64: the last one is of channels that nobody reads
    # before the next barrier. Elsewhere each copy has some of all channels.
    "d256_split": (ONE_COPY,),
    "d256_split_window": (ONE_COPY,),
    "d256_split_capped": (ONE_COPY,),
    "d256_split_part": (ONE_COPY,),
    "up_to_d256_split": (ONE_COPY,),
    "up_to_d256_split_window": (ONE_COPY,),
    "d128_split_r64": ("s_waitcnt vmcnt(0): vmcnt 0 -> 1", *4 * (ONE_COPY,)),
    # A sink is loaded before the loop and waited for at once; where waves share rows, what they
    # give to each other is waited for after it, and would do.
    **dict.fromkeys(
        (
            "d128_packed_window_r128",
            "d128_paged_window_r128",
            "d128_tokens_window_r128",
            "d128_paged_e4m3_window_r128",
            "d128_split_e4m3_window_r128",
            "d128_tokens_e4m3_window_r128",
        ),
        tuple(f"s_waitcnt lgkmcnt(0): lgkmcnt 0 -> {weaker}" for weaker in ("1", "dropped")),
    ),
}
"""Mutants that survive, by kernel: these waits wait for more than is needed there."""
FEWEST = 80
"""Least number of waits and barriers of a kernel that are changed, one at a time. A smaller number
would mean that some were not found."""


@proved(IN_BF16, with_types=False)
def test_every_wait_and_every_barrier_is_needed(entry: KernelEntry) -> None:
    verdicts = list(mutants.run(entry))
    assert len(verdicts) >= FEWEST
    changes = tuple(verdict.mutant.change for verdict in mutants.survivors(verdicts))
    name = entry.name.removeprefix("attention_prefill_bf16_")
    assert changes == STRICTER.get(name, ()), mutants.survivors(verdicts)


def test_in_fp16_it_is_the_same() -> None:
    """All instructions are equal except for names with bf16, so mutants of one prove both."""
    assert [entry.name for entry in IN_BF16 if not is_its_twin(entry)] == []


def is_its_twin(entry: KernelEntry) -> bool:
    twin = catalogue(entry.arch).kernel(entry.name.replace("_bf16_", "_f16_"))
    own = tuple(line.replace("bf16", "f16") for line in instructions(entry))
    return instructions(twin) == own
