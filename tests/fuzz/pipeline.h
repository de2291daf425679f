/* pipeline.h - runs a module of unknown origin through everything the library offers: passes, text, plan, run.
 *
 * The process aborts if an invariant is violated: failures report an error and successes do not; the verifier
 * never rejects the output of a pass; the printed module parses to the same text. Small sizes limit a run to
 * about a millisecond; larger ones are skipped. */
#ifndef TESTS_FUZZ_PIPELINE_H
#define TESTS_FUZZ_PIPELINE_H

#include "ir/graph/ir.h"
#include "tests/fuzz/choices.h"

/* Prints to standard error what a target makes of its bytes, if FUZZ_SHOW is set in the environment. */
void pipeline_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns whether the call succeeded. Aborts if the diagnostics contradict the status. */
bool pipeline_accepts(ampc_status status, const diag *d);
/* Runs the passes with options drawn from `c`; m has the graph @forward. Returns false if the module was rejected. */
bool pipeline_compile(ir_module *m, choices *c, diag *d);
/* Prints, parses and prints again; aborts if the texts differ. */
void pipeline_round_trip(const ir_module *m, diag *d);
/* Plans every entry graph and runs it twice, with sizes and data drawn from `c`. */
void pipeline_run(const ir_module *m, choices *c);

#endif
