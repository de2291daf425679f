/* links.h - a description of the links between the ranks of a distributed training, and the time of a reduction. */
#ifndef AMPC_LINKS_H
#define AMPC_LINKS_H

#include "ir/base/diag.h"
#include "ir/graph/ir.h"

#include <stdbool.h>

typedef struct link_speed {
    double bandwidth, latency; /* bytes per second in one direction; seconds of a message */
} link_speed;

typedef struct link_model {
    int64_t host;                   /* ranks of a host */
    link_speed inside, between;     /* of a rank, in a host; of a host, to the others */
    bool overlap;                   /* reductions run during the backward */
    double seconds[IR_PHASE_COUNT]; /* measured for one rank; 0: to be predicted */
} link_model;

/* Reads a file of lines "KEY = VALUE" (docs/distributed.md); NULL: the initial values of all keys. Errors include file
 * and line. */
ampc_status links_load(const char *path, diag *d, link_model *out);

/* Hosts that so many ranks fill. */
int64_t links_hosts(const link_model *l, int64_t ranks);
/* Bytes that each rank sends to reduce so many bytes. */
double links_sent(int64_t ranks, double bytes);
/* Predicted seconds of one all_reduce of so many bytes. */
double links_all_reduce(const link_model *l, int64_t ranks, double bytes);

#endif
