/* run_outputs.c - named results of a run to .npz, .safetensors, JSON or a table. */
#include "ir/ops/shape_text.h"
#include "runtime/data/npz.h"
#include "runtime/files/safetensors.h"
#include "tools/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct result {
    const char *key;
    rt_tensor tensor;
} result;

struct run_results {
    arena *arena;
    VEC(result) items;
};

run_results *run_results_new(arena *a)
{
    run_results *r = arena_alloc(a, sizeof *r);
    r->arena = a;
    return r;
}

void run_results_add(run_results *r, const char *key, const rt_tensor *t)
{
    result item = {arena_strdup(r->arena, key), *t};
    vec_push(r->arena, &r->items, item);
}

/* Whether the output exists in the model or is a loss that the user named, rather than added by the compiler. */
static bool is_of_model(const ir_module *m, const ir_node *n)
{
    const ir_loss *loss = m->training.losses.items;
    if (n->role == IR_OUTPUT_loss) return m->training.losses.count && strcmp(loss->kind, IR_LOSS_OF_GRAPH) == 0;
    return n->role == IR_OUTPUT_loss_term || !ir_output_roles[n->role].name;
}

void run_add_model_outputs(run_context *c, const ir_graph *g, run_results *r)
{
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const char *name = ir_output_name(n);
        const rt_tensor *t = rt_session_output(c->session, name);
        if (t && is_of_model(c->tool->module, n))
            run_results_add(r, arena_printf(c->tool->arena, "output/%s", name), t);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static ampc_status write_npz(const run_results *r, const char *path, diag *d)
{
    rt_array *arrays = arena_array(r->arena, r->items.count + 1, sizeof *arrays);
    for (size_t i = 0; i < r->items.count; i++) {
        const rt_tensor *t = &r->items.items[i].tensor;
        rt_array *a = &arrays[i];
        *a = (rt_array){
            .name = arena_strdup(r->arena, r->items.items[i].key), .dtype = t->dtype, .rank = t->rank, .data = t->data};
        memcpy(a->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
        if (!rt_array_bytes(t->dtype, t->rank, t->dims, &a->bytes))
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "'%s' is too large", a->name);
    }
    return rt_npz_write(path, arrays, r->items.count, d);
}

static ampc_status write_safetensors(const run_results *r, const char *path, diag *d)
{
    rt_safetensors_writer *w;
    TRY(rt_safetensors_create(d, &w));
    for (size_t i = 0; i < r->items.count; i++) {
        const rt_tensor *t = &r->items.items[i].tensor;
        ampc_status status = rt_safetensors_add(w, r->items.items[i].key, t->dtype, t->rank, t->dims, t->data);
        if (status != AMPC_OK) {
            rt_safetensors_discard(w);
            return status;
        }
    }
    return rt_safetensors_commit(w, path, NULL);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_row(const result *r)
{
    enum { SHOWN = 6 };
    char shape[IR_SHAPE_TEXT];
    const rt_tensor *t = &r->tensor;
    size_t size = ir_dtype_size(t->dtype), bytes = 0;
    double min = INFINITY, max = -INFINITY, sum = 0;
    (void)rt_array_bytes(t->dtype, t->rank, t->dims, &bytes);
    size_t count = bytes / size;
    for (size_t i = 0; i < count; i++) {
        double v = ir_load_f64(t->dtype, (const char *)t->data + i * size);
        min = fmin(min, v);
        max = fmax(max, v);
        sum += v;
    }
    diag_print(stdout, "%-32s %-20s", r->key, ir_shape_text(shape, ir_dtype_name(t->dtype), t->rank, t->dims));
    if (count > 1) printf("  min %-11.5g mean %-11.5g max %-11.5g", min, sum / (double)count, max);
    for (size_t i = 0; i < count && i < SHOWN; i++)
        printf(" %.6g", ir_load_f64(t->dtype, (const char *)t->data + i * size));
    puts(count > SHOWN ? " .." : "");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_json(json_writer *w, const result *r)
{
    const rt_tensor *t = &r->tensor;
    size_t size = ir_dtype_size(t->dtype), bytes = 0;
    (void)rt_array_bytes(t->dtype, t->rank, t->dims, &bytes);
    json_begin(w, r->key, '{');
    json_write_string(w, "dtype", ir_dtype_name(t->dtype));
    json_begin(w, "shape", '[');
    for (int i = 0; i < t->rank; i++) json_write_integer(w, NULL, t->dims[i]);
    json_end(w, ']');
    json_begin(w, "values", '[');
    for (size_t i = 0; i < bytes / size; i++)
        json_write_real(w, NULL, "%.9g", ir_load_f64(t->dtype, (const char *)t->data + i * size));
    json_end(w, ']');
    json_end(w, '}');
}

static void print_json(const run_results *r)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    for (size_t i = 0; i < r->items.count; i++) write_json(&w, &r->items.items[i]);
    json_end(&w, '}');
    putchar('\n');
}

ampc_status run_results_write(const run_results *r, run_context *c)
{
    const char *path = c->tool->o.output;
    TRY(rt_session_fetched(c->session, c->tool->diag));
    if (!path && c->tool->o.pass.json) {
        print_json(r);
        return AMPC_OK;
    }
    if (!path) {
        for (size_t i = 0; i < r->items.count; i++) print_row(&r->items.items[i]);
        return AMPC_OK;
    }
    return (options_output(&c->tool->o) == OUTPUT_NPZ ? write_npz : write_safetensors)(r, path, c->tool->diag);
}
