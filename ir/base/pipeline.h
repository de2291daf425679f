/* pipeline.h - runs one step of a pipeline with timing, verification, dumps and round-trip checks.
 *
 * A pipeline is an ordered table of named steps that work on one subject: the passes over a module (passes/runner.c),
 * or the stages of a plan (runtime/plan/plan.c). Pipelines differ only in how to run a step, and how to verify, print
 * and read back the subject. */
#ifndef AMPC_PIPELINE_H
#define AMPC_PIPELINE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdio.h>

/* What to check and print after each step. */
typedef struct pipeline_options {
    const char *dump_after; /* name of a step, or "all"; NULL: none */
    const char *dump_dir;   /* one file per dump; NULL: dumps go to `dumps` */
    /* Writes a file for dump_dir; NULL only without one. */
    ampc_status (*save)(const char *path, const void *text, size_t n, diag *d);
    bool dump_changed; /* dump each step that changes the text */
    bool verify_each, roundtrip_each, timing;
    FILE *dumps, *times; /* NULL: none */
} pipeline_options;

typedef struct pipeline {
    const pipeline_options *options;
    void *subject; /* passed to the functions */
    ampc_status (*run)(void *subject, int step);
    ampc_status (*verify)(void *subject, const char *step);
    const char *(*print)(void *subject, arena *a); /* canonical text; NULL: out of memory */
    /* Prints, parses and compares; NULL: the text cannot be parsed. */
    ampc_status (*round_trip)(void *subject, const char *step, arena *a);
    const char *extension; /* of dump files */
    const char *title[3];  /* in `dumps`: text before and after the name of the step, and after the dump */
    diag *diag;
} pipeline;

/* Runs step `step` (from 0) of the table. `scratch` holds texts, which are freed before returning. */
ampc_status pipeline_run_step(const pipeline *p, int step, const char *name, arena *scratch);

/* Fails to compile if a step precedes one that it needs. needs: 1u << position of each step that it needs, or 0. */
#define PIPELINE_CHECK_ORDER(name, position, needs) \
    _Static_assert((needs) >> (position) == 0, #name " precedes a step that it needs")

#endif
