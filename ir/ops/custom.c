/* custom.c - finding custom operators, their attributes, and calls of their inference. */
#include "ir/ops/custom.h"
#include "ir/base/diag.h"
#include "ir/ops/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const custom_op *custom_find(const custom_ops *ops, const char *domain, const char *name, int64_t version)
{
    const custom_op *found = NULL;
    for (const custom_op *op = ops ? ops->first : NULL; op; op = op->next) {
        if (op->table.since > version || (found && found->table.since > op->table.since)) continue;
        if (strcmp(op->table.name, name) == 0 && strcmp(op->table.domain, domain) == 0) found = op;
    }
    return found;
}

/* ---- attributes ------------------------------------------------------------------------------- */

static const ir_field *find(const ampc_attributes *all, const char *name, char kind)
{
    const ir_field *f = all && name ? ir_field_find(all->items, all->count, name) : NULL;
    return f && f->kind == kind ? f : NULL;
}

int64_t ampc_attribute_int(const ampc_attributes *attributes, const char *name, int64_t otherwise)
{
    const ir_field *a = find(attributes, name, 'i');
    return a ? a->i : otherwise;
}

double ampc_attribute_float(const ampc_attributes *attributes, const char *name, double otherwise)
{
    const ir_field *a = find(attributes, name, 'f');
    return a ? a->f : otherwise;
}

const char *ampc_attribute_string(const ampc_attributes *attributes, const char *name, const char *otherwise)
{
    const ir_field *a = find(attributes, name, 's');
    return a ? a->s : otherwise;
}

const int64_t *ampc_attribute_ints(const ampc_attributes *attributes, const char *name, size_t *count)
{
    const ir_field *a = find(attributes, name, 'I');
    if (count) *count = a ? (size_t)a->count : 0;
    return a ? a->ints : NULL;
}

const float *ampc_attribute_floats(const ampc_attributes *attributes, const char *name, size_t *count)
{
    const ir_field *a = find(attributes, name, 'F');
    if (count) *count = a ? (size_t)a->count : 0;
    return a ? a->floats : NULL;
}

/* ---- sizes ------------------------------------------------------------------------------------ */

static bool is_size(const ir_dim_table *t, int64_t d) { return d >= 0 || (t && ir_dim_exists(t, d)); }

int64_t ampc_dim_compute(const ampc_infer_call *call, char op, int64_t a, int64_t b)
{
    ir_dim_table *t = call ? call->dims : NULL;
    int64_t result = 0;
    const bool symbolic = a < 0 || b < 0;
    if (!call || (symbolic && !(is_size(t, a) && is_size(t, b)))) return IR_DIM_NONE;
    switch (op) {
    case '+': return symbolic ? ir_dim_add(t, a, b) : checked_add(a, b, &result) ? result : IR_DIM_NONE;
    case '-': return symbolic ? ir_dim_sub(t, a, b) : a - b;
    case '*': return symbolic ? ir_dim_mul(t, a, b) : checked_mul(a, b, &result) ? result : IR_DIM_NONE;
    case '/': return b <= 0 ? IR_DIM_NONE : symbolic ? ir_dim_floordiv(t, a, b) : a / b;
    default: return IR_DIM_NONE;
    }
}

/* ---- inference -------------------------------------------------------------------------------- */

ampc_status custom_failed(ampc_status status, const char *function, char *reason, size_t reason_size, char *message,
                          size_t message_size)
{
    reason[reason_size - 1] = '\0';
    for (char *c = reason; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    const bool known = status > AMPC_OK && status <= AMPC_NO_MEMORY;
    if (!known) status = AMPC_REJECTED;
    snprintf(message, message_size, "%s failed: %s", function, *reason ? reason : ampc_status_sentence(status));
    return status;
}

static bool check_result(const custom_types *t, int i, char *message, size_t size)
{
    const ampc_type *out = &t->out[i];
    if (!out->dtype) return true;
    if ((int)out->dtype < 0 || (int)out->dtype >= IR_DTYPE_COUNT) {
        snprintf(message, size, "infer has set an unknown element type %d for result %d", (int)out->dtype, i);
        return false;
    }
    if (out->rank < 0 || out->rank > IR_MAX_RANK) {
        snprintf(message, size, "infer has set rank %d for result %d", out->rank, i);
        return false;
    }
    for (int k = 0; k < out->rank; k++)
        if (!is_size(t->dims, out->dims[k])) {
            snprintf(message, size, "infer has set an invalid size of dimension %d of result %d", k, i);
            return false;
        }
    return true;
}

ampc_status custom_infer(custom_ops *ops, const custom_op *op, custom_types *t, char *message, size_t message_size)
{
    char reason[256] = "";
    ampc_infer_call call = {.struct_size = sizeof call,
                            .node = t->node,
                            .attributes = &t->attributes,
                            .n_operands = (size_t)t->n_in,
                            .n_results = (size_t)t->n_out,
                            .operands = t->in,
                            .results = t->out,
                            .message = reason,
                            .message_size = sizeof reason,
                            .dims = t->dims};
    memset(t->out, 0, sizeof t->out);
    ops->calls = true;
    ampc_status status = op->table.infer(&call, op->table.user);
    ops->calls = false;
    if (status != AMPC_OK) return custom_failed(status, "inference", reason, sizeof reason, message, message_size);
    for (int i = 0; i < t->n_out; i++)
        if (!check_result(t, i, message, message_size)) return AMPC_REJECTED;
    t->workspace[0] = call.workspace;
    t->workspace[1] = call.gradient_workspace;
    return AMPC_OK;
}
