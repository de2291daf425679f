/* info.h - descriptions of files for ampc-run info. Each kind of file has a table of sections, and a section is printed
 * as lines of text or written as members of a JSON object. */
#ifndef AMPC_TOOLS_INFO_H
#define AMPC_TOOLS_INFO_H

#include "ir/base/json_writer.h"
#include "tools/run.h"

typedef struct info_section {
    void (*print)(const void *subject);
    void (*write)(const void *subject, json_writer *w);
} info_section;

/* Prints the sections, or writes them with --json. The last section has no functions. */
void info_report(const tool *t, const info_section *sections, const void *subject);
/* Prints "LABEL       TEXT"; "" continues the line before. */
void info_line(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What to type next; not `first`: an alternative. */
void info_print_next(const char *text, bool first);
void info_write_strings(json_writer *w, const char *key, const char *const *items, size_t n);
/* "1 sample", "2 samples" */
const char *info_count(int64_t n, const char *what, arena *a);

/* ---- info_operators.c: the operators of a model ---- */

/* An ONNX operator, and what all ops support to which its nodes were lowered. */
typedef struct info_operator {
    const char *name, *last; /* last: node that was counted */
    int64_t nodes;
    bool gradient, cpu, cuda;
} info_operator;
typedef VEC(info_operator) info_operators;

info_operators info_collect_operators(const ir_graph *g, const custom_ops *custom, arena *a);
info_operator *info_find_operator(const info_operators *all, const char *name); /* NULL: none */
/* The columns of INFO_SUPPORT. */
#define INFO_SUPPORT "gradient  cpu  cuda"
const char *info_support_text(const info_operator *o, arena *a);
void info_write_support(const info_operator *o, json_writer *w);

/* ---- messages ---- */

/* Messages that become part of a description. Others are reported as usual. */
typedef struct info_messages {
    tool *tool;
    diag_level kept[2]; /* which levels are kept */
    VEC(const char *) texts;
    strmap *nodes; /* names of the nodes that errors name */
} info_messages;

/* A diag that keeps messages in *m; diag_free it. A failed allocation does not return. */
diag *info_messages_open(tool *t, diag_level first, diag_level second, info_messages *m);
/* Reports what was kept after all. */
void info_messages_report(const info_messages *m);
void info_messages_print(const info_messages *m, const char *label);
void info_messages_write(const info_messages *m, json_writer *w, const char *key);

/* ---- what an operand is ---- */

/* A folder of checkpoints, or a file of tensors. */
ampc_status info_is_checkpoint(const char *operand, diag *d, bool *out);
ampc_status info_checkpoint(tool *t);
/* KIND:... as for --data. */
ampc_status info_is_data(const char *operand, diag *d, bool *out);
ampc_status info_data(tool *t);
/* A model that the importer accepts, and one that it refuses. */
ampc_status info_model(run_context *c);
ampc_status info_refused(tool *t, const info_messages *problems);

/* Exporter, mode, opset and what the export changed, of a model that may have been refused. */
void info_print_export(const tool *t, const ir_module *m);
void info_write_export(const ir_module *m, json_writer *w);

#endif
