/* sizing.c - symbol sizes and input shapes for a batch; see the header. */
#include "runtime/data/sizing.h"

#include "ir/graph/exported.h"
#include "ir/ops/shape_text.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHAPE_TEXT = 256 };

/* ---- text ---- */

/* "i64[8*N,4]"; `t` NULL: all dimensions are numbers. */
static void shape_text(const ir_dim_table *t, ir_dtype dtype, const int64_t *dims, int rank, char text[SHAPE_TEXT])
{
    text_buffer out = text_in(text, SHAPE_TEXT);
    ir_shape_add(&out, ir_dtype_name(dtype), t, rank, dims);
}

/* ---- the batch ---- */

static ampc_status report_fixed(const rt_sizing *z, const ir_value *v, int64_t fixed, diag *d)
{
    const ir_module *m = z->graph->module;
    const char *plural = fixed == 1 ? "" : "s";
    if (!m->training.exported.batch)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "a batch of %" PRId64 " does not fit input '%s', which has %" PRId64 " sample%s", z->batch,
                          v->name, fixed, plural);
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, z->batch);
    return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_NOWHERE, OPTION_batch, NULL, batch, "to compile it"),
                      "a batch of %" PRId64 " does not fit input '%s', which has %" PRId64
                      " sample%s in the model file, because it was not exported with %s",
                      z->batch, v->name, fixed, plural, ir_exporter_get(m)->batch);
}

static ampc_status check_batch(const rt_sizing *z, int64_t fixed, diag *d)
{
    char text[RT_DIM_TEXT];
    const ir_dim_table *t = z->graph->module->dims;
    size_t other;
    int64_t rows;
    if (z->batch <= 0) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the model has no fixed batch size: specify one");
    if (!z->graph->inputs.count) return AMPC_OK;
    const ir_value *v = z->graph->inputs.items[0];
    if (fixed && fixed != z->batch) return report_fixed(z, v, fixed, d);
    if (!v->type.rank || ir_dim_eval(t, v->type.dims[0], z->sizes, &rows, &other)) return AMPC_OK;
    const char *name = other == SIZE_MAX ? "NAME" : ir_dim_symbol_name(t, other);
    return diag_error(
        d, AMPC_REJECTED, DIAG_USE(DIAG_NOWHERE, OPTION_dims, .key = name, .value = "SIZE"),
        "input '%s': the first dimension %s has more than one symbol, and any of them could count samples", v->name,
        rt_dim_text(t, v->type.dims[0], text));
}

static ampc_status start(rt_sizing *z, const ir_graph *g, const int64_t *sizes, int64_t *fixed, diag *d)
{
    size_t n = ir_dim_symbol_count(g->module->dims);
    *z = (rt_sizing){.graph = g,
                     .sizes = rt_alloc(n + 1, sizeof *z->sizes),
                     .counts = rt_alloc(n + 1, sizeof *z->counts),
                     .trial = rt_alloc(n + 1, sizeof *z->trial)};
    if (!z->sizes || !z->counts || !z->trial) return rt_no_memory(d);
    for (size_t i = 0; i < n; i++) z->sizes[i] = sizes ? sizes[i] : -1, z->counts[i] = false;
    z->symbol = rt_batch_symbol(g, z->sizes, fixed);
    if (z->symbol != RT_NO_SYMBOL) z->counts[z->symbol] = true;
    return AMPC_OK;
}

ampc_status rt_sizing_open(rt_sizing *z, const ir_graph *g, const int64_t *sizes, int64_t batch, diag *d)
{
    int64_t fixed;
    TRY(start(z, g, sizes, &fixed, d));
    rt_sizing_set_batch(z, batch ? batch : fixed);
    return check_batch(z, fixed, d);
}

ampc_status rt_sizing_open_smallest(rt_sizing *z, const ir_graph *g, const int64_t *sizes, diag *d)
{
    int64_t fixed;
    TRY(start(z, g, sizes, &fixed, d));
    z->batch = fixed > 0 ? fixed : 1;
    return AMPC_OK;
}

void rt_sizing_set_unbound(rt_sizing *z)
{
    for (size_t i = 0; i < ir_dim_symbol_count(z->graph->module->dims); i++)
        if (z->sizes[i] < 0) z->sizes[i] = 1;
}

void rt_sizing_set_batch(rt_sizing *z, int64_t batch)
{
    z->batch = batch;
    for (size_t i = 0; i < ir_dim_symbol_count(z->graph->module->dims); i++)
        if (z->counts[i]) z->sizes[i] = batch;
}

void rt_sizing_close(rt_sizing *z)
{
    rt_free(z->sizes);
    rt_free(z->counts);
    rt_free(z->trial);
    z->sizes = z->trial = NULL;
    z->counts = NULL;
}

/* True if the dimension depends on the number of samples. */
static bool depends_on_batch(const rt_sizing *z, ir_dim dim)
{
    const ir_dim_table *t = z->graph->module->dims;
    int64_t value;
    if (z->symbol == RT_NO_SYMBOL) return false;
    for (size_t i = 0; i < ir_dim_symbol_count(t); i++)
        z->trial[i] = z->counts[i] ? -1 : z->sizes[i] < 0 ? 1 : z->sizes[i];
    return !ir_dim_eval(t, dim, z->trial, &value, NULL);
}

bool rt_sizing_varies(const rt_sizing *z, const ir_value *v)
{
    bool varies = false;
    for (int i = 0; i < v->type.rank; i++) varies |= depends_on_batch(z, v->type.dims[i]);
    return varies;
}

/* ---- shapes ---- */

bool rt_sizing_shape(const rt_sizing *z, const ir_value *v, int64_t *dims)
{
    const ir_dim_table *t = z->graph->module->dims;
    for (int i = 0; i < v->type.rank; i++)
        if (!ir_dim_eval(t, v->type.dims[i], z->sizes, &dims[i], NULL) || dims[i] < 0) return false;
    return true;
}

/* ---- the dimension of the samples ---- */

/* For a fixed batch: true if the dimension can count its samples, `several_rows` of each or one. The data determine a
 * first dimension that is not known yet. */
static bool may_count_samples(const rt_sizing *z, ir_dim dim, bool several_rows)
{
    int64_t rows;
    if (!ir_dim_eval(z->graph->module->dims, dim, z->sizes, &rows, NULL)) return several_rows;
    return rows == z->batch || (several_rows && z->batch > 0 && rows % z->batch == 0);
}

int rt_sizing_axis(const rt_sizing *z, const ir_value *v)
{
    int axis = 0, found = 0;
    if (!v->type.rank) return -1;
    if (z->symbol == RT_NO_SYMBOL) {
        while (axis < v->type.rank && !may_count_samples(z, v->type.dims[axis], axis == 0)) axis++;
        return axis < v->type.rank ? axis : -1;
    }
    for (int i = 0; i < v->type.rank; i++)
        if (depends_on_batch(z, v->type.dims[i])) axis = i, found++;
    return found == 1 ? axis : 0;
}

/* ---- learning sizes ---- */

/* For an input [N,..] and a sample with the same number of further dimensions: compares axis by axis. The same for an
 * input without samples. */
static bool learn_by_axis(rt_sizing *z, const ir_value *v, const rt_field *f)
{
    const ir_dim_table *t = z->graph->module->dims;
    const int axis = f->whole ? v->type.rank : rt_sizing_axis(z, v);
    int64_t rows;
    bool learnt = false;
    if (axis < 0 || v->type.rank != f->rank + !f->whole) return false;
    if (!f->whole && (!ir_dim_eval(t, v->type.dims[axis], z->sizes, &rows, NULL) || rows != z->batch)) return false;
    for (int i = 0; i < f->rank; i++)
        learnt |= ir_dim_solve(t, v->type.dims[i < axis ? i : i + 1], f->dims[i], z->sizes);
    return learnt;
}

/* Elements that the field has for one batch; false if there are too many. */
static bool elements_in_batch(const rt_sizing *z, const rt_field *f, int64_t *n)
{
    return checked_mul(f->whole ? 1 : z->batch, rt_field_elements(f), n);
}

/* Computes the only unknown axis from the number of elements. Does not solve a first dimension in another symbol,
 * because only the batch symbol counts samples. */
static bool learn_by_count(rt_sizing *z, const ir_value *v, const rt_field *f)
{
    const ir_dim_table *t = z->graph->module->dims;
    int64_t size, known = 1, total;
    int open = -1;
    for (int i = 0; i < v->type.rank; i++) {
        bool has_size = ir_dim_eval(t, v->type.dims[i], z->sizes, &size, NULL);
        if ((!has_size && open >= 0) || (has_size && !checked_mul(known, size, &known))) return false;
        if (!has_size) open = i;
    }
    if (open < 0 || known <= 0 || !elements_in_batch(z, f, &total)) return false;
    if (open == 0 && z->symbol != RT_NO_SYMBOL && !depends_on_batch(z, v->type.dims[0])) return false;
    return total % known == 0 && ir_dim_solve(t, v->type.dims[open], total / known, z->sizes);
}

/* Recognises another symbol for the batch. */
static bool learn_batch(rt_sizing *z, const ir_value *v, const rt_field *f)
{
    size_t symbol;
    if (z->symbol == RT_NO_SYMBOL || f->whole || v->type.rank != f->rank + 1 || rt_sizing_varies(z, v)) return false;
    if (!ir_dim_is_symbol(z->graph->module->dims, v->type.dims[0], &symbol) || z->sizes[symbol] >= 0) return false;
    z->counts[symbol] = true;
    z->sizes[symbol] = z->batch;
    return true;
}

bool rt_sizing_learn(rt_sizing *z, const ir_value *v, const rt_field *f)
{
    return learn_batch(z, v, f) || learn_by_axis(z, v, f) || learn_by_count(z, v, f);
}

/* Marks in `trial` the symbols of the dimension that are not known, by binding one after the other. */
static void mark_open(const rt_sizing *z, ir_dim dim)
{
    size_t symbol;
    int64_t size;
    while (!ir_dim_eval(z->graph->module->dims, dim, z->trial, &size, &symbol) && symbol != SIZE_MAX)
        z->trial[symbol] = 1;
}

enum { OPEN_TEXT = 512 };

/* Writes "T, U"; returns the first of these symbols, or NULL. */
static const char *list_open(const rt_sizing *z, char *text, bool *several)
{
    const ir_dim_table *t = z->graph->module->dims;
    const char *first = NULL;
    text_buffer out = text_in(text, OPEN_TEXT);
    *several = false;
    for (size_t i = 0; i < ir_dim_symbol_count(t); i++) {
        if (z->sizes[i] >= 0 || z->trial[i] < 0) continue;
        text_add_item(&out, ", ", ir_dim_symbol_name(t, i));
        *several = first != NULL;
        if (!first) first = ir_dim_symbol_name(t, i);
    }
    return first;
}

ampc_status rt_sizing_check_open(const rt_sizing *z, diag *d)
{
    const ir_graph *g = z->graph;
    char shape[SHAPE_TEXT], names[OPEN_TEXT];
    const ir_value *first = NULL;
    bool several;
    int64_t dims[IR_MAX_RANK];
    memcpy(z->trial, z->sizes, ir_dim_symbol_count(g->module->dims) * sizeof *z->trial);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        for (int k = 0; k < v->type.rank; k++) mark_open(z, v->type.dims[k]);
        if (!first && !rt_sizing_shape(z, v, dims)) first = v;
    }
    const char *symbol = list_open(z, names, &several);
    if (!symbol || !first) return AMPC_OK;
    const diag_loc loc = DIAG_USE(DIAG_NOWHERE, OPTION_dims, symbol, "SIZE", several ? "and so on" : NULL);
    shape_text(g->module->dims, first->type.dtype, first->type.dims, first->type.rank, shape);
    if (z->symbol == RT_NO_SYMBOL)
        return diag_error(d, AMPC_REJECTED, loc, "input '%s' is %s, and the data do not determine %s", first->name,
                          shape, names);
    return diag_error(d, AMPC_REJECTED, loc,
                      "input '%s' is %s, and neither the batch (%s, the first dimension of input '%s') nor the data "
                      "determine %s",
                      first->name, shape, ir_dim_symbol_name(g->module->dims, z->symbol), g->inputs.items[0]->name,
                      names);
}

ampc_status rt_sizing_check(const rt_sizing *z, const ir_value *v, const rt_field *f, diag *d)
{
    char sample[SHAPE_TEXT], shape[SHAPE_TEXT];
    int64_t dims[IR_MAX_RANK], n = 1, expected;
    bool known = rt_sizing_shape(z, v, dims);
    for (int i = 0; i < v->type.rank && known; i++) known = checked_mul(n, dims[i], &n);
    if (known && elements_in_batch(z, f, &expected) && n == expected) return AMPC_OK;
    shape_text(NULL, f->dtype, f->dims, f->rank, sample);
    shape_text(z->graph->module->dims, v->type.dtype, v->type.dims, v->type.rank, shape);
    if (f->whole)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "'%s' is %s, which does not fit input '%s' of type %s, the same for every batch", f->name,
                          sample, v->name, shape);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "one sample of '%s' is %s, which does not fit input '%s' of type %s in a batch of %" PRId64,
                      f->name, sample, v->name, shape, z->batch);
}
