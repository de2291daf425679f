/* pipeline.h - a module of unknown origin through everything that may be done with it: passes, text, plan, run.
 *
 * What must hold on the way, or the process aborts: a failure leaves an error and a success leaves none; no error is
 * one of the verifier about what a pass made; the printed module parses to the same text. Sizes are kept so small that
 * an execution takes about a millisecond; what would take longer is left alone. */
#ifndef TESTS_FUZZ_PIPELINE_H
#define TESTS_FUZZ_PIPELINE_H

#include "ir/ir.h"
#include "tests/fuzz/choices.h"

/* To standard error, where FUZZ_SHOW is in the environment: what a target makes of its bytes. */
void pipeline_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether the call succeeded; what it reported has to agree. */
bool pipeline_accepts(ampc_status status, const diag *d);
/* Through the passes with options drawn from `c`; m has the graph @forward. False: refused. */
bool pipeline_compile(ir_module *m, choices *c, diag *d);
/* Prints, parses, prints. */
void pipeline_round_trip(const ir_module *m, diag *d);
/* Plans and runs every entry graph under sizes and data drawn from `c`, twice. */
void pipeline_run(const ir_module *m, choices *c);

#endif
