/* api_custom.c - registering custom operators. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ----------------------------------------------------------------------------------- */

static bool is_name(const char *s, const char *others)
{
    if (!isalpha((unsigned char)*s)) return false;
    while (isalnum((unsigned char)*s) || (*s && strchr(others, *s))) s++;
    return !*s;
}

static ampc_status check_names(const ampc_operator *t, diag *d)
{
    const diag_loc loc = diag_named(NULL, DIAG_OPERATOR, t->name);
    if (!is_name(t->name, "_.")) return diag_error(d, AMPC_USAGE, loc, "not the name of an operator");
    if (strcmp(t->domain, "ai.onnx") == 0)
        return diag_error(d, AMPC_USAGE, loc, "operators of ONNX's own domain cannot be registered");
    if (!is_name(t->domain, "_.-"))
        return diag_error(d, AMPC_USAGE, loc, "'%s' is not the name of a domain", t->domain);
    return t->since >= 0 ? AMPC_OK : diag_error(d, AMPC_USAGE, loc, "since is negative");
}

static ampc_status check_functions(const ampc_operator *t, diag *d)
{
    const diag_loc loc = diag_named(NULL, DIAG_OPERATOR, t->name);
    if (!t->infer) return diag_error(d, AMPC_USAGE, loc, "infer is NULL");
    if (!t->forward_cpu && !t->forward_cuda) return diag_error(d, AMPC_USAGE, loc, "no device has a forward function");
    if ((t->gradient_cpu && !t->forward_cpu) || (t->gradient_cuda && !t->forward_cuda))
        return diag_error(d, AMPC_USAGE, loc, "a gradient needs the forward function of the same device");
    if (t->gradient_operands && !t->gradient_cpu && !t->gradient_cuda)
        return diag_error(d, AMPC_USAGE, loc, "gradient_operands are set, but no device has a gradient");
    return AMPC_OK;
}

static ampc_status check_precision(const ampc_operator *t, ir_colour *colour, diag *d)
{
    const diag_loc loc = diag_named(NULL, DIAG_OPERATOR, t->name);
    const unsigned low = 1u << AMPC_F16 | 1u << AMPC_BF16, all = low | 1u << AMPC_F32 | 1u << AMPC_F64;
    int word = t->colour ? ir_words_find(ir_words_colour, t->colour) : (int)IR_BLACK;
    if (word < 0 || word == (int)IR_CLEAR)
        return diag_error(d, AMPC_USAGE, loc, "'%s' is not a colour: expected white, black or gray", t->colour);
    if (t->float_types & ~all) return diag_error(d, AMPC_USAGE, loc, "float_types has bits of other types");
    if (t->float_types && !(t->float_types & 1u << AMPC_F32))
        return diag_error(d, AMPC_USAGE, loc, "float_types must include f32");
    if (word == (int)IR_WHITE && !(t->float_types & low))
        return diag_error(d, AMPC_USAGE, loc, "a white operator must allow f16 or bf16");
    *colour = (ir_colour)word;
    return AMPC_OK;
}

/* ---- registering ------------------------------------------------------------------------------ */

static void free_operator(custom_op *op)
{
    if (!op) return;
    free((char *)(uintptr_t)op->table.domain);
    free((char *)(uintptr_t)op->table.name);
    free(op);
}

void api_custom_free(custom_ops *ops)
{
    for (custom_op *op = ops->first, *next; op; op = next) {
        next = op->next;
        free_operator(op);
    }
    ops->first = NULL;
}

static ampc_status add(custom_ops *ops, const ampc_operator *t, ir_colour colour, diag *d)
{
    custom_op *op = calloc(1, sizeof *op);
    if (!op) return rt_no_memory(d);
    *op = (custom_op){.table = *t, .colour = colour, .next = ops->first};
    op->table.domain = strdup(t->domain);
    op->table.name = strdup(t->name);
    op->table.colour = NULL;
    if (!op->table.since) op->table.since = 1;
    if (!op->table.float_types) op->table.float_types = 1u << AMPC_F32;
    if (!op->table.domain || !op->table.name) {
        free_operator(op);
        return rt_no_memory(d);
    }
    ops->first = op;
    return AMPC_OK;
}

ampc_status ampc_operator_register(ampc_context *context, const ampc_operator *table)
{
    ampc_operator t;
    ir_colour colour = IR_BLACK;
    diag *d;
    TRY(api_enter(context, &d));
    NEED(table);
    TRY(api_options(table, &t, sizeof t, d));
    if (!t.domain) return api_null(d, __func__, "domain");
    if (!t.name) return api_null(d, __func__, "name");
    TRY(check_names(&t, d));
    TRY(check_functions(&t, d));
    TRY(check_precision(&t, &colour, d));
    const int since = t.since ? t.since : 1;
    const custom_op *before = custom_find(&context->custom, t.domain, t.name, since);
    if (before && before->table.since == since)
        return diag_error(d, AMPC_USAGE, diag_named(NULL, DIAG_OPERATOR, t.name),
                          "operator %s::%s of version %d is registered already", t.domain, t.name, since);
    return add(&context->custom, &t, colour, d);
}
