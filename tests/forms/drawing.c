/* drawing.c - a model under construction: its inputs, nodes and results, and the table of forms. */
#include "frontend/onnx.h"
#include "tests/forms/form.h"

#include <math.h>

/* ---- the table of forms ---- */

static const form *const tables[] = {
#define FAMILY(name) forms_##name,
#include "tests/forms/families.def"
};

static const struct {
    const char *op;
    int since;
} operators[] = {
#define FORM(op, since, min_in, max_in, max_out, handler, arg) {#op, since},
#include "frontend/onnx.def"
};

bool form_each(bool (*each)(const form *f, void *user), void *user)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const form *f = tables[i]; f->op; f++)
            if (!each(f, user)) return false;
    return true;
}

const form *form_find(const char *op)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const form *f = tables[i]; f->op; f++)
            if (strcmp(f->op, op) == 0) return f;
    return NULL;
}

int form_since(const char *op)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i].op, op) == 0) return operators[i].since < 7 ? 7 : operators[i].since;
    return 0;
}

const form *drawing_any_form(drawing *w)
{
    enum { MAX = 512 };
    const form *usable[MAX];
    int n = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const form *f = tables[i]; f->op && n < MAX; f++) {
            const int since = form_since(f->op);
            if (since && since <= w->m.opset) usable[n++] = f;
        }
    return usable[(choose(w->c, 256) << 8 | choose(w->c, 256)) % n];
}

/* ---- the model ---- */

drawing drawing_start(choices *c, int opset)
{
    static const int8_t sizes[] = {2, 3, 4, 5, 2, 3, 1, 6};
    drawing w = {.c = c, .m = model_new(opset)};
    for (int i = 0; i < FORM_SYMBOLS; i++) w.sizes[i] = rarely(c, 24) ? 0 : CHOOSE(c, sizes);
    w.special = rarely(c, 8);
    return w;
}

void drawing_free(drawing *w)
{
    for (int i = 0; i < w->n_inputs; i++) free(w->inputs[i].data);
    wire_free(&w->m.graph);
    wire_free(&w->m.functions);
}

/* Returns the model so far with other outputs. */
static wire file_with(const drawing *w, const tensor *outputs, const int *indices, int n)
{
    model m = {.opset = w->m.opset, .ir_version = w->m.ir_version};
    wire_raw(&m.graph, w->m.graph.bytes, w->m.graph.size);
    wire_raw(&m.functions, w->m.functions.bytes, w->m.functions.size);
    for (int i = 0; i < n; i++) {
        const tensor *t = &outputs[indices ? indices[i] : i];
        model_output(&m, t->name, t->type, NULL);
    }
    return model_finish(&m);
}

wire drawing_file(drawing *w, int outputs[FORM_POOL], int *n, bool all)
{
    *n = 0;
    for (int i = 0; i < w->n_results; i++)
        if (!w->used[i] || rarely(w->c, 3) || all) outputs[(*n)++] = i;
    return file_with(w, w->results, outputs, *n);
}

bool drawing_add(drawing *w, const form *f)
{
    w->type = draw_type(w, f->types);
    f->draw(w, f);
    return !w->refusal[0];
}

/* ---- results ---- */

static int symbol_of(const drawing *w, const ir_module *m, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return 0;
    for (int i = 0; i < FORM_SYMBOLS; i++)
        if (ir_dim_symbol(m->dims, i ? "M" : "N") == d) return i + 1;
    (void)w;
    return -1;
}

static bool describe(const drawing *w, const ir_module *m, const ir_type *type, tensor *t)
{
    int64_t sizes[64];
    const size_t n = ir_dim_symbol_count(m->dims);
    if (n > 64 || type->rank > ONNX_MAX_RANK) return false;
    for (size_t i = 0; i < n; i++) {
        const char *name = ir_dim_symbol_name(m->dims, i);
        sizes[i] = strcmp(name, "N") == 0 ? w->sizes[0] : strcmp(name, "M") == 0 ? w->sizes[1] : -1;
    }
    t->type = (int)onnx_type_of(type->dtype);
    t->rank = type->rank;
    for (int i = 0; i < t->rank; i++) {
        if (!ir_dim_eval(m->dims, type->dims[i], sizes, &t->dims[i], NULL) || t->dims[i] < 0) return false;
        t->symbol[i] = symbol_of(w, m, type->dims[i]);
    }
    return true;
}

/* Reads the types and shapes of `n` results from the importer. */
static void infer(drawing *w, tensor *results, int n)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    wire file = file_with(w, results, NULL, n);
    const ampc_status status = onnx_import_memory(file.bytes, file.size, "drawn.onnx", NULL, d, &m);
    if (status != AMPC_OK) snprintf(w->refusal, sizeof w->refusal, "%s", diag_first_error(d));
    for (int i = 0; i < n && status == AMPC_OK; i++) {
        const ir_node *output = ir_graph_find_output(ir_graph_find(m, "forward"), results[i].name);
        if (!output || !describe(w, m, &output->in[0].value->type, &results[i])) results[i].rank = -1;
    }
    ir_module_free(m);
    diag_free(d);
    wire_free(&file);
}

static bool fits(const tensor *t) { return t->rank >= 0 && t->rank <= FORM_MAX_RANK && count_of(t) <= 2048; }

static void pool_add(drawing *w, const tensor *t)
{
    w->pool[w->n_pool < FORM_POOL ? w->n_pool++ : choose(w->c, FORM_POOL)] = *t;
}

void form_results(drawing *w, const form *f, const tensor *results, int n)
{
    tensor made[8];
    n = n < 8 ? n : 8;
    memcpy(made, results, (size_t)n * sizeof *made);
    infer(w, made, n);
    for (int i = 0; i < n && w->n_results < FORM_POOL; i++) {
        w->random[w->n_results] = f->random;
        w->results[w->n_results++] = made[i];
        if (fits(&made[i]) && !f->random && !w->exact) pool_add(w, &made[i]);
    }
}

void form_add(drawing *w, const form *f, node *n, int results)
{
    tensor made[8] = {{.rank = -1}};
    for (int i = 0; i < results && i < 8; i++) {
        made[i] = (tensor){.rank = -1};
        snprintf(made[i].name, sizeof made[i].name, "t%d", w->made++);
        wire_text(n, 2, made[i].name);
    }
    wire_text(n, 4, f->op);
    model_add(&w->m, n);
    w->is_complete = true;
    form_results(w, f, made, results);
}
