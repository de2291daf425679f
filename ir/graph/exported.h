/* exported.h - what is known about the export of a model: the exporter, and what it did to the network
 * (ir/graph/exported.def); its version and the mode, which only `info` shows, as metadata. */
#ifndef AMPC_EXPORTED_H
#define AMPC_EXPORTED_H

#include "ir/graph/ir.h"

typedef struct ir_exporter_info {
    const char *word, *name, *whole, *mode, *batch;
} ir_exporter_info;

typedef struct ir_fact_info {
    const char *word, *one, *many, *cost;
} ir_fact_info;

extern const ir_exporter_info ir_exporters[IR_EXPORTER_COUNT];
extern const ir_fact_info ir_facts[IR_FACT_COUNT];

/* Keys of entries that are single texts. */
#define IR_EXPORTED_PRODUCER "producer" /* name and version of the exporter as in the file */
#define IR_EXPORTED_MODE "export.mode"  /* "training" or "evaluation"; absent: unknown */

/* Prefix of the keys of entries that the model file has for other programs (metadata_props): "metadata.author". */
#define IR_METADATA "metadata."
/* The runtime that the model is written for. */
#define IR_CONSUMER "consumer"

const ir_exporter_info *ir_exporter_get(const ir_module *m);

void ir_exported_set(ir_module *m, ir_fact fact, const char *const *names, int count);

/* Adds the facts, and the exporter, to the module of a recipe; `prefix` is the name of the model. */
void ir_exported_copy(ir_module *to, const ir_module *from, const char *prefix);

/* "3 biases were removed because they were zero: a, b, c", with at most `shown` names; 0: all. */
const char *ir_exported_text(const ir_module *m, ir_fact fact, int shown, arena *a);

#endif
