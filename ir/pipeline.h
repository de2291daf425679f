/* pipeline.h - runs one step of a pipeline with timing, verification, dumps and round-trip checks.
 *
 * A pipeline is an ordered table of named steps that work on one subject, such as the passes over a module
 * (passes/runner.c). Pipelines differ only in four functions: how to run a step, and how to verify, print and read back
 * the subject. */
#ifndef AMPC_PIPELINE_H
#define AMPC_PIPELINE_H

#include "ir/arena.h"
#include "ir/diag.h"

#include <stdio.h>

typedef struct pipeline {
    void *subject; /* passed to the functions */
    ampc_status (*run)(void *subject, int step);
    ampc_status (*verify)(void *subject);
    const char *(*print)(void *subject, arena *a);                        /* canonical text */
    ampc_status (*round_trip)(void *subject, const char *step, arena *a); /* prints, parses, compares */
    /* options */
    const char *dump_after; /* name of a step, or "all"; NULL: none */
    const char *dump_dir;   /* one file per dump; NULL: dumps go to `text` */
    bool dump_changed;      /* dump each step that changes the text */
    bool verify_each, roundtrip_each, timing;
    FILE *text; /* for timings and dumps; NULL: none */
    diag *diag;
} pipeline;

/* Runs step `step` (from 0) of the table. `scratch` holds texts, which are freed before returning. */
ampc_status pipeline_run_step(const pipeline *p, int step, const char *name, arena *scratch);

#endif
