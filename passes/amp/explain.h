/* explain.h - the precision of each node of the model and the reason, recorded when the colours are final. --explain,
 * drawings and reports are made from these records. */
#ifndef AMPC_EXPLAIN_H
#define AMPC_EXPLAIN_H

#include "passes/amp/colour.h"

typedef struct node_report {
    const char *name, *op;
    const char *place; /* of its graph (amp_graph_place) */
    ir_colour colour;
    ir_dtype type;        /* it computes in this type */
    ir_dtype writes;      /* of its first float result, if it is another type; else IR_NO_DTYPE */
    const char *rule;     /* a sentence */
    const char *cause;    /* a node or a line of a list; "" */
    const char *alone_in; /* the other type and its extra cost at this node, or NULL */
    const char *part_of;  /* the node that it was fused into, which has a record of the same place; NULL: none */
    int number;           /* by position in compile_report.nodes */
} node_report;

/* Records the nodes of the graph in the report, and prints those that --explain selects. Of the nodes that an operator
 * was lowered to, the last coloured one is recorded. */
void amp_report_nodes(const ir_graph *g, const amp_scope *s);

/* Prints another sentence about the model node that n comes from, found by a later pass, if --explain selects it. */
void amp_explain_more(const ir_node *n, const char *sentence, const compile *c);

/* The record of the model node that n comes from; NULL: it comes from none, or nothing was recorded. */
const node_report *amp_node_report(const compile_report *r, const ir_node *n, arena *a);

/* The nodes and attributes around a subgraph, joined by '/'; "" outside of one. */
const char *amp_graph_place(const ir_graph *g, arena *a);
/* "fp32", "fp16" or the name of the type. */
const char *amp_precision_name(ir_dtype t);

#endif
