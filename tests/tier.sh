# shellcheck shell=bash
# tier.sh - how much of its work a suite does; see tests/tier.h.
tier_is_reduced() { [ "${AMPC_TIER:-full}" != full ]; }

# tier_is_due I N: whether test number I is due if N consecutive runs share the tests evenly.
tier_is_due() { ! tier_is_reduced || [ $((($1 + ${AMPC_SEED:-0}) % $2)) -eq 0 ]; }
