/* consumer.h - what the runtime that reads an emitted model does with operators in low precision, built in or from a
 * description file (docs/consumers.md). */
#ifndef AMPC_CONSUMER_H
#define AMPC_CONSUMER_H

#include "passes/amp/list.h"

typedef struct consumer {
    const char *name, *text; /* text: a short description */
    const char *file;        /* for places: "consumer tensorrt", or the path */
    arena *arena;
    strmap *f32_inside;   /* operators that read and write low, but compute in f32: a list_place each */
    strmap *no_kernel;    /* operators without a low-precision kernel */
    strmap *fuses;        /* operators that it recognises in their parts and computes as a whole, in f32 inside */
    const char *patterns; /* what the rule `patterns` of a list says, for operators that it has besides */
    int64_t opset;        /* the highest that it reads; 0: any */
    int64_t terms;        /* a sum or mean of so many terms is safe in the low type, even if it is accumulated there */
    list_place terms_place;
} consumer;

/* `name`: a built-in description, or the path of a file. Errors include file and line. *out is in the arena. */
ampc_status consumer_load(const char *name, arena *a, diag *d, const consumer **out);

/* The line by which n computes in f32 inside, or NULL. */
const list_place *consumer_inside(const consumer *c, const ir_node *n);

#endif
