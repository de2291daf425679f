"""How much of its work a suite does; see tests/tier.h."""
import os

TIER = os.environ.get("AMPC_TIER") or "full"
SEED = int(os.environ.get("AMPC_SEED") or 0)


def is_reduced():
    return TIER != "full"


def is_due(i, n):
    """Whether test number i is due if n consecutive runs share the tests evenly."""
    return not is_reduced() or (i + SEED) % n == 0


def print_part(what, n):
    """Prints "part 2 of 4: WHAT" if only the tests that are due run."""
    if is_reduced():
        print(f"part {SEED % n + 1} of {n}: {what}", flush=True)


def part(tests, n):
    """Every n-th of these tests, in turn from run to run; all of them in the full tier."""
    return [test for i, test in enumerate(tests) if is_due(i, n)]
