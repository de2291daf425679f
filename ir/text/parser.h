/* parser.h - internals of the parser, for the files ir/text/parse*.c only. */
#ifndef AMPC_PARSER_H
#define AMPC_PARSER_H

#include "ir/ops/number.h"
#include "ir/text/text.h"

typedef struct ir_parser {
    ir_module *module;
    ir_lexer lex;
    arena *scratch;   /* holds tokens and tables during this call */
    diag *diag;       /* the caller's */
    diag *inner;      /* for ir_infer; messages are repeated at the node's position in the text */
    const char *file; /* for messages */
    const char *source;
    int64_t version;
    struct ir_v2 *v2; /* of versions 1 and 2, else NULL */
    int depth;        /* of regions around the current node */
    bool sealed, ended;
    uint32_t statements; /* bits of parse_training.c: those read so far */
    int statement_count;
    ir_graph *graph;
    ir_builder builder;
    strmap *results, *inputs; /* of the current graph: name -> ir_value */
    ir_token item;            /* the first word of the current storage, graph, .. */
    ir_token statement;       /* position of errors about the whole node */
    ir_op derived;            /* a slope in the form of version 2: the op of its function; else IR_OP_COUNT */
} ir_parser;

typedef VEC(int64_t) ir_int_list;

#define IR_MARKS "thbx_" /* see ir_layout */

/* ---- parse_tokens.c: each function consumes what it names or reports an error ---- */

diag_loc ir_place(const ir_parser *p, const ir_token *t);
#define FAIL_AT(p, token, ...) diag_error((p)->diag, AMPC_REJECTED, ir_place(p, token), __VA_ARGS__)
#define FAIL(p, ...) FAIL_AT(p, &(p)->lex.token, __VA_ARGS__)
const char *ir_describe(const ir_parser *p, const ir_token *t); /* for messages: 'matmul', the end of the text */
ampc_status ir_fail_expected(ir_parser *p, const char *what);   /* "expected WHAT, found ..." */
bool ir_is_mark(const ir_parser *p, const char *mark);
bool ir_is_word(const ir_parser *p, const char *word);
bool ir_accept_mark(ir_parser *p, const char *mark); /* false: the current token is different */
bool ir_accept_word(ir_parser *p, const char *word);
ampc_status ir_need_mark(ir_parser *p, const char *mark);
ampc_status ir_need(ir_parser *p, ir_token_kind kind, const char *what, const char **out);
ampc_status ir_need_int(ir_parser *p, int64_t *out);
const char *ir_parser_strdup(ir_parser *p, const char *s);             /* a copy in the module's arena */
const char *ir_accept_note(ir_parser *p);                              /* comment after the last token, or NULL */
ampc_status ir_parse_dims(ir_parser *p, ir_int_list *out, size_t max); /* "[N,784]" */
ampc_status ir_parse_type(ir_parser *p, ir_type *out);                 /* "f32[N,784]", or "_": no type */
/* ": f32[N,784]", the type of a storage or graph input. */
ampc_status ir_parse_declared_type(ir_parser *p, bool symbols, ir_type *out);

/* "as WORD", or nothing: role 0. */
ampc_status ir_parse_role(ir_parser *p, const char *const *words, int count, int *role);

/* ---- parse_training.c ------------------------------------------------------------------------------------ */

/* Parses a statement about the training of the module, if it is one. */
ampc_status ir_parse_training(ir_parser *p, bool *found);
/* Parses "facts(read, numbered) by read", or nothing. */
ampc_status ir_parse_decision(ir_parser *p, ir_storage *s);

/* ---- parse_v2.c: what version 3 writes otherwise --------------------------------------------------------- */

/* Turns `meta` lines into what version 3 has statements for. */
ampc_status ir_convert_meta(ir_parser *p);
/* Parses "held mask", or nothing. */
ampc_status ir_parse_held(ir_parser *p, ir_storage *s);

/* ---- parse_v1.c ------------------------------------------------------------------------------------------ */

/* Assigns the roles that names implied in version 1. */
void ir_assign_roles(ir_module *m);

/* ---- parse_v2.c: graphs of nodes in versions 1 and 2, which name graphs of the module in attributes ------- */

void ir_v2_start(ir_parser *p);
bool ir_v2_op(const ir_parser *p, const char *word, ir_op *op);
/* Whether the node has an attribute of that name in version 2 only. */
bool ir_v2_has_attr(const ir_parser *p, const ir_node *n, const char *name);
ampc_status ir_v2_parse_attr(ir_parser *p, ir_node *n, const char *name); /* the value */
ampc_status ir_v2_add_body(ir_parser *p, ir_graph **out);                 /* the name after the word `body` */
ampc_status ir_v2_finish(ir_parser *p);                                   /* moves the graphs into their nodes */

/* ---- parse_v2_slopes.c ----------------------------------------------------------------------------------- */

/* Whether the current token is the name of an op of version 2 that is a slope now; sets p->derived. */
bool ir_find_v2_slope(ir_parser *p);
/* Parses the attributes of such an op. */
ampc_status ir_parse_v2_slope(ir_parser *p, ir_node *n);

/* ---- parse_attrs.c ---------------------------------------------------------------------------------------- */

ampc_status ir_parse_attrs(ir_parser *p, ir_node *n); /* "{axis=1, perm=[0,2,1]}", or nothing */

/* ---- parse_node.c ---------------------------------------------------------------------------------------- */

void ir_repeat_message(void *user, diag_level level, const char *message); /* sink of p->inner */
ampc_status ir_parse_graph(ir_parser *p, ir_graph *g);                     /* its inputs and lines, after its name */

#endif
