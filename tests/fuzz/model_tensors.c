/* model_tensors.c - implements the tensors, operands and nodes of model.h. */
#include "tests/fuzz/model.h"

#include <stdio.h>
#include <string.h>

tensor *pool_add(drawing *w, const tensor *t)
{
    tensor *to = &w->pool[w->n_pool < MAX_POOL ? w->n_pool++ : choose(w->c, MAX_POOL)];
    *to = *t;
    return to;
}

tensor fresh_tensor(drawing *w, int type, int rank, const int64_t *dims)
{
    tensor t = {.type = type, .rank = rank};
    snprintf(t.name, sizeof t.name, "t%d", w->made++);
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
    return t;
}

/* "2,N,3" */
static const char *format_dims(const tensor *t, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < t->rank; i++) {
        const char *comma = i ? "," : "";
        if (t->dims[i] >= 0) used += (size_t)snprintf(text + used, 128 - used, "%s%d", comma, (int)t->dims[i]);
        else used += (size_t)snprintf(text + used, 128 - used, "%s%s", comma, t->dims[i] == SYMBOL_N ? "N" : "M");
    }
    return text;
}

static bool is_fixed(const tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0) return false;
    return true;
}

static void add_initializer(drawing *w, const tensor *t)
{
    static const size_t sizes[] = {
        [FLOAT] = 4, [INT32] = 4, [INT64] = 8, [BOOL] = 1, [HALF] = 2, [DOUBLE] = 8, [BFLOAT] = 2};
    char text[128], bytes[4096] = {0};
    const size_t size = sizes[t->type];
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    if (n * size > sizeof bytes) n = sizeof bytes / size; /* too few bytes, which the importer must reject */
    for (size_t i = 0; i < n; i++) {
        const int small = (int)(choices_word(w->c) % 5) - 1;
        const int64_t integer = t->type == BOOL ? small & 1 : small;
        const float real = (float)small * 0.5f;
        if (t->type == FLOAT) memcpy(bytes + i * size, &real, size);
        else if (t->type == DOUBLE) memcpy(bytes + i * size, &(double){small * 0.5}, size);
        else if (t->type == HALF || t->type == BFLOAT)
            memcpy(bytes + i * size, &(uint16_t){(uint16_t)(0x3c00 + small * 64)}, size);
        else memcpy(bytes + i * size, &integer, size);
    }
    model_tensor(&w->m, tensor_new(t->name, t->type, format_dims(t, text), bytes, n * size));
}

tensor new_source(drawing *w, int type, int rank, const int64_t *dims)
{
    char text[128];
    tensor t = fresh_tensor(w, type, rank, dims);
    for (int i = 0; i < rank; i++)
        if (t.dims[i] == UNKNOWN) t.dims[i] = 2;
    if (is_fixed(&t) && choose(w->c, 4)) add_initializer(w, &t);
    else model_input(&w->m, t.name, type, format_dims(&t, text));
    return *pool_add(w, &t);
}

static int float_type(choices *c)
{
    static const int types[] = {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, HALF, BFLOAT, DOUBLE};
    return CHOOSE(c, types);
}

static bool is_float(int type) { return type == FLOAT || type == HALF || type == BFLOAT || type == DOUBLE; }

int64_t draw_size(drawing *w)
{
    static const int8_t sizes[] = {1, 2, 3, 4, 2, 3, 5, 1, 0, 6};
    return CHOOSE(w->c, sizes);
}

int64_t draw_dim(drawing *w) { return rarely(w->c, 4) ? (choose(w->c, 3) ? SYMBOL_N : SYMBOL_M) : draw_size(w); }

tensor new_float(drawing *w, int rank)
{
    int64_t dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = draw_dim(w);
    return new_source(w, float_type(w->c), rank, dims);
}

tensor pick_float(drawing *w, int rank)
{
    static const int8_t ranks[] = {2, 4, 3, 2, 4, 1, 5, 0};
    for (int attempt = 0; attempt < 5 && w->n_pool; attempt++) {
        const tensor *t =
            &w->pool[choose(w->c, 2) ? w->n_pool - 1 - choose(w->c, w->n_pool) / 3 : choose(w->c, w->n_pool)];
        if (is_float(t->type) && t->rank >= rank) return *t;
    }
    const int drawn = CHOOSE(w->c, ranks);
    return new_float(w, drawn > rank ? drawn : rank);
}

tensor pick_like(drawing *w, const tensor *x)
{
    int64_t dims[MAX_RANK];
    for (int attempt = 0; attempt < 3; attempt++) {
        const tensor *t = &w->pool[choose(w->c, w->n_pool)];
        if (t->type == x->type && t->rank == x->rank && !memcmp(t->dims, x->dims, sizeof *x->dims * (size_t)x->rank))
            return *t;
    }
    const int drop = rarely(w->c, 3) ? choose(w->c, x->rank + 1) : 0;
    for (int i = drop; i < x->rank; i++) dims[i - drop] = rarely(w->c, 4) ? 1 : x->dims[i];
    return new_source(w, x->type, x->rank - drop, dims);
}

const char *add_numbers(drawing *w, const int64_t *items, int n, char name[12])
{
    const int64_t count = n;
    char text[16];
    tensor t = fresh_tensor(w, INT64, 1, &count);
    snprintf(text, sizeof text, "%d", n);
    wire value = tensor_new(t.name, INT64, text, items, (size_t)n * 8);
    memcpy(name, t.name, sizeof t.name);
    if (choose(w->c, 2)) model_tensor(&w->m, value);
    else model_constant(&w->m, t.name, value);
    return name;
}

const char *format_list(const int64_t *items, int n, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) used += (size_t)snprintf(text + used, 128 - used, "%s%d", i ? "," : "", (int)items[i]);
    return text;
}

void add_list(drawing *w, int since, const char *attribute, const int64_t *items, int n, char operands[128],
              wire *attributes)
{
    char text[128], name[12];
    if (w->m.opset < since) {
        node k = {0};
        node_ints(&k, attribute, format_list(items, n, text));
        wire_raw(attributes, k.bytes, k.size);
        wire_free(&k);
    } else {
        snprintf(operands + strlen(operands), 128 - strlen(operands), ",%s", add_numbers(w, items, n, name));
    }
}

tensor add_node(drawing *w, const char *op, const char *operands, wire *attributes, int type, int rank,
                const int64_t *dims)
{
    tensor y = fresh_tensor(w, type, rank, dims);
    node n = node_new(op, operands, y.name);
    if (attributes) wire_raw(&n, attributes->bytes, attributes->size);
    if (attributes) wire_free(attributes);
    model_add(&w->m, &n);
    return *pool_add(w, &y);
}

int draw_axis(drawing *w, const tensor *x) { return x->rank ? choose(w->c, x->rank) : 0; }

int64_t axis_or_negative(drawing *w, const tensor *x, int axis) { return choose(w->c, 2) ? axis : axis - x->rank; }
