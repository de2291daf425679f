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

typedef struct attribute {
    const char *name;
    char kind; /* as in ops.def */
    int64_t number;
    double real;
    const char *text;
    size_t count;
    int64_t *numbers;
    float *reals;
} attribute;

struct ampc_attributes {
    size_t n;
    attribute items[];
};

char *custom_escape(arena *a, const char *text)
{
    char *out = arena_alloc(a, 2 * strlen(text) + 1), *to = out;
    for (; *text; text++) {
        if (*text == '\\' || *text == '\n') *to++ = '\\';
        *to++ = *text == '\n' ? 'n' : *text;
    }
    return out;
}

static const char *unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (from[0] == '\\' && from[1]) *to++ = *++from == 'n' ? '\n' : *from;
        else *to++ = *from;
    *to = '\0';
    return text;
}

static bool read_int(const char *text, int64_t *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return end != text && !*end;
}

static bool read_list(arena *a, char *text, attribute *out)
{
    size_t most = strlen(text) / 2 + 1;
    if (out->kind == 'I') out->numbers = arena_array(a, most, sizeof *out->numbers);
    else out->reals = arena_array(a, most, sizeof *out->reals);
    for (char *item, *rest = *text ? text : NULL; (item = strsep(&rest, ","));) {
        double real = 0;
        bool ok = out->kind == 'I' ? read_int(item, &out->numbers[out->count]) : ir_float_parse(item, &real);
        if (!ok) return false;
        if (out->kind == 'F') out->reals[out->count] = (float)real;
        out->count++;
    }
    return true;
}

static bool read_attribute(arena *a, char *line, char kind, attribute *out)
{
    char *value = strchr(line, '=');
    if (!value) return false;
    *value++ = '\0';
    *out = (attribute){.name = line, .kind = kind};
    switch (kind) {
    case 'i': return read_int(value, &out->number);
    case 'f':
        if (!ir_float_parse(value, &out->real)) return false;
        out->real = (double)(float)out->real;
        return true;
    case 's': out->text = unescape(value); return true;
    case 'I':
    case 'F': return read_list(a, value, out);
    default: return false;
    }
}

const ampc_attributes *custom_attributes(arena *a, const char *values, const char *kinds)
{
    size_t n = strlen(kinds);
    ampc_attributes *all = arena_alloc(a, sizeof *all + n * sizeof *all->items);
    char *rest = n ? arena_strdup(a, values) : NULL;
    if (!n && *values) return NULL;
    for (; all->n < n; all->n++) {
        char *line = strsep(&rest, "\n");
        if (!line || !read_attribute(a, line, kinds[all->n], &all->items[all->n])) return NULL;
    }
    return rest ? NULL : all;
}

static const attribute *find(const ampc_attributes *all, const char *name, char kind)
{
    for (size_t i = 0; all && name && i < all->n; i++)
        if (all->items[i].kind == kind && strcmp(all->items[i].name, name) == 0) return &all->items[i];
    return NULL;
}

int64_t ampc_attribute_int(const ampc_attributes *attributes, const char *name, int64_t otherwise)
{
    const attribute *a = find(attributes, name, 'i');
    return a ? a->number : otherwise;
}

double ampc_attribute_float(const ampc_attributes *attributes, const char *name, double otherwise)
{
    const attribute *a = find(attributes, name, 'f');
    return a ? a->real : otherwise;
}

const char *ampc_attribute_string(const ampc_attributes *attributes, const char *name, const char *otherwise)
{
    const attribute *a = find(attributes, name, 's');
    return a ? a->text : otherwise;
}

const int64_t *ampc_attribute_ints(const ampc_attributes *attributes, const char *name, size_t *count)
{
    const attribute *a = find(attributes, name, 'I');
    if (count) *count = a ? a->count : 0;
    return a ? a->numbers : NULL;
}

const float *ampc_attribute_floats(const ampc_attributes *attributes, const char *name, size_t *count)
{
    const attribute *a = find(attributes, name, 'F');
    if (count) *count = a ? a->count : 0;
    return a ? a->reals : NULL;
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
                            .attributes = t->attributes,
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
