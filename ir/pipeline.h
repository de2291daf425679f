/* pipeline.h - the one way to run a step of a pipeline: time, run, verify, dump, round-trip.
 *
 * A pipeline is an ordered table of named steps over one subject. The passes over a module are one (passes/runner.c).
 * What differs between pipelines is in four functions: how a step runs and how its subject is verified, printed and
 * read back. */
#ifndef AMPC_PIPELINE_H
#define AMPC_PIPELINE_H

#include "ir/arena.h"
#include "ir/diag.h"

#include <stdio.h>

typedef struct pipeline {
    void *subject; /* what the functions get */
    ampc_status (*run)(void *subject, int step);
    ampc_status (*verify)(void *subject);
    const char *(*print)(void *subject, arena *a);                /* canonical text */
    ampc_status (*round_trip)(void *subject, const char *step, arena *a); /* prints, reads back, compares */
    /* what is asked for */
    const char *dump_after; /* name of a step or "all"; NULL: none */
    const char *dump_dir;   /* a file per dump; NULL: to `text` */
    bool dump_changed;      /* dump each step that changes the text */
    bool verify_each, roundtrip_each, timing;
    FILE *text; /* of timings and dumps; NULL: nowhere */
    diag *diag;
} pipeline;

/* Step number `step` of its table, counted from 0. The arena is for texts, which are not kept. */
ampc_status pipeline_run_step(const pipeline *p, int step, const char *name, arena *scratch);

#endif
