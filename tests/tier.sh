# shellcheck shell=bash
# tier.sh - how much of its work a suite does; see tests/tier.h.
tier_is_reduced() { [ "${AMPC_TIER:-full}" != full ]; }

# tier_is_due I N: whether test number I is due if N consecutive runs share the tests evenly.
tier_is_due() { ! tier_is_reduced || [ $((($1 + ${AMPC_SEED:-0}) % $2)) -eq 0 ]; }

# tier_print_part WHAT N: prints "part 2 of 4: WHAT" if only the tests that are due run.
tier_print_part() { ! tier_is_reduced || echo "part $((${AMPC_SEED:-0} % $2 + 1)) of $2: $1"; }
