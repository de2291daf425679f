/* run_inputs.c - values of an entry graph's inputs: --input NAME=FILE and --inputs FILE -> tensors. */
#include "frontend/read/tensor.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "runtime/files/safetensors.h"
#include "tools/run.h"

#include <stdlib.h>
#include <string.h>

void run_inputs_clear(run_inputs *in) { rt_arrays_clear(&in->arrays); }

static bool append(run_inputs *in, rt_array *a)
{
    rt_array *larger = realloc(in->arrays.items, (in->arrays.count + 1) * sizeof *larger);
    if (!larger) return false;
    in->arrays.items = larger;
    larger[in->arrays.count++] = *a;
    return true;
}

/* Moves the array into `in`, renamed to the input that it is for. */
static ampc_status add(run_context *c, run_inputs *in, rt_array *a, const char *name)
{
    char *copy = strdup(name);
    free(a->name);
    a->name = copy;
    if (copy && append(in, a)) return AMPC_OK;
    rt_array_clear(a);
    return diag_error(c->tool->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
}

/* ---- the formats ----------------------------------------------------------------------------- */

/* The ONNX test data store bfloat16 as uint16. */
static ampc_status read_pb(run_context *c, const char *path, ir_dtype u2_as, rt_array *out)
{
    onnx_tensor t;
    TRY(onnx_tensor_read_file(c->tool->arena, path, c->tool->diag, &t));
    ir_dtype type = t.dtype == IR_u16 && u2_as == IR_bf16 ? IR_bf16 : t.dtype;
    if (type == IR_NO_DTYPE)
        return diag_error(c->tool->diag, AMPC_UNSUPPORTED, DIAG_FILE(path), "tensors of type %s are not supported",
                          onnx_type_name(t.type));
    *out = (rt_array){.dtype = type, .rank = t.rank, .bytes = t.size, .data = malloc(t.size ? t.size : 1)};
    if (!out->data) return diag_error(c->tool->diag, AMPC_NO_MEMORY, DIAG_FILE(path), "out of memory");
    memcpy(out->dims, t.dims, (size_t)t.rank * sizeof *t.dims);
    if (t.size) memcpy(out->data, t.bytes, t.size);
    return AMPC_OK;
}

static ampc_status read_entry(run_context *c, run_inputs *in, const rt_safetensors *f, const rt_tensor_entry *e)
{
    rt_array a = {.dtype = e->dtype, .rank = e->rank, .bytes = e->bytes, .data = malloc(e->bytes ? e->bytes : 1)};
    if (!a.data) return diag_error(c->tool->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    for (int i = 0; i < e->rank && i < RT_ARRAY_MAX_RANK; i++) a.dims[i] = e->dims[i];
    ampc_status status = rt_safetensors_read(f, e, a.data);
    if (status == AMPC_OK) return add(c, in, &a, e->name);
    rt_array_clear(&a);
    return status;
}

static ampc_status read_safetensors(run_context *c, run_inputs *in, const char *path)
{
    rt_safetensors *f;
    TRY(rt_safetensors_open(path, RT_VERIFY_RECORDED, c->tool->diag, &f));
    ampc_status status = AMPC_OK;
    for (size_t i = 0; i < rt_safetensors_count(f) && status == AMPC_OK; i++) {
        const rt_tensor_entry *e = rt_safetensors_entry(f, i);
        if (e->dtype == IR_NO_DTYPE || e->rank > RT_ARRAY_MAX_RANK)
            status = diag_error(c->tool->diag, AMPC_UNSUPPORTED, diag_named(path, DIAG_TENSOR, e->name),
                                "tensors of type %s and rank %d are not supported", e->type, e->rank);
        else status = read_entry(c, in, f, e);
    }
    rt_safetensors_close(f);
    return status;
}

/* ---- --input and --inputs -------------------------------------------------------------------- */

static ampc_status read_one(run_context *c, const ir_graph *g, const char *text, run_inputs *in)
{
    const char *name, *path;
    rt_array a = {0};
    TRY(options_split(text, "--input", c->tool->arena, c->tool->diag, &name, &path));
    const ir_value *input = ir_graph_find_input(g, name);
    if (!input)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_NOWHERE, "--input: @%s has no input '%s'", g->name, name);
    ir_dtype u2_as = input->type.dtype == IR_bf16 ? IR_bf16 : IR_NO_DTYPE;
    if (tool_ends_with(path, ".npy")) TRY(rt_npy_read(path, u2_as, c->tool->diag, &a));
    else if (tool_ends_with(path, ".pb")) TRY(read_pb(c, path, u2_as, &a));
    else return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE(path), "--input: expected a .npy or .pb file");
    return add(c, in, &a, name);
}

/* Finds an array by the input's name, or by "input/NAME" as in test cases; later arrays win over earlier ones. */
static rt_array *find(run_context *c, const run_inputs *in, const char *name)
{
    const char *prefixed = arena_printf(c->tool->arena, "input/%s", name);
    for (size_t i = in->arrays.count; i-- > 0;)
        if (strcmp(in->arrays.items[i].name, name) == 0 || strcmp(in->arrays.items[i].name, prefixed) == 0)
            return &in->arrays.items[i];
    return NULL;
}

/* A .npz with arrays of bf16 was read as if it had none of u16. */
static void restore_u16(run_context *c, const ir_graph *g, run_inputs *in)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *input = g->inputs.items[i];
        rt_array *a = input->type.dtype == IR_u16 ? find(c, in, input->name) : NULL;
        if (a && a->dtype == IR_bf16) a->dtype = IR_u16;
    }
}

static ampc_status read_all(run_context *c, const ir_graph *g, const char *path, run_inputs *in)
{
    ir_dtype u2_as = IR_NO_DTYPE;
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i]->type.dtype == IR_bf16) u2_as = IR_bf16;
    if (tool_ends_with(path, ".npz")) {
        TRY(rt_npz_read(path, u2_as, c->tool->diag, &in->arrays));
        restore_u16(c, g, in);
        return AMPC_OK;
    }
    if (tool_ends_with(path, ".safetensors")) return read_safetensors(c, in, path);
    return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE(path), "--inputs: expected a .npz or .safetensors file");
}

/* Extends `from` to all values of g, by id, that are computed from its values. */
static void spread(const ir_graph *g, bool *from)
{
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++)
            for (int k = 0; k < n->n_out && ir_in(n, i) && from[ir_in(n, i)->id]; k++) from[n->out[k]->id] = true;
}

/* Whether the graph may run without the missing inputs: those of the loss, or any of a module of several models. */
static bool may_miss(const ir_graph *g, const bool *missing)
{
    const ir_node *loss = ir_output_by_role(g, IR_OUTPUT_loss);
    return g->module->training.recipe || (loss && missing[ir_in(loss, 0)->id]);
}

/* Selects the outputs that need no missing input. AMPC_REJECTED, not reported: there is no such output, or another
 * input is missing. */
static ampc_status select_without(run_context *c, const ir_graph *g, bool *missing)
{
    const char *others = "";
    const char **selected = arena_array(c->tool->arena, g->value_ids + 1, sizeof *selected);
    int count = 0;
    spread(g, missing);
    if (!may_miss(g, missing)) return AMPC_REJECTED;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const char *name = ir_output_name(n);
        if (!missing[ir_in(n, 0)->id]) selected[count++] = name;
        else others = arena_printf(c->tool->arena, "%s%s'%s'", others, *others ? ", " : "", name);
    }
    if (!count) return AMPC_REJECTED;
    diag_note(c->tool->diag, DIAG_NOWHERE, "omitting outputs %s: an input %shas no value", others,
              g->module->training.recipe ? "" : "of the loss ");
    return rt_session_select(c->session, g->name, selected, count, c->tool->diag);
}

static ampc_status missing_input(run_context *c, const ir_value *v)
{
    return diag_error(c->tool->diag, AMPC_USAGE, DIAG_NOWHERE,
                      "input '%s' (%s) has no value; use --input %s=FILE or --inputs FILE", v->name,
                      ir_type_print(c->tool->module, &v->type, c->tool->arena), v->name);
}

static ampc_status bind(run_context *c, const ir_graph *g, run_inputs *in)
{
    bool *missing = arena_array(c->tool->arena, g->value_ids + 1, sizeof *missing);
    in->tensors = arena_array(c->tool->arena, g->inputs.count + 1, sizeof *in->tensors);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        const rt_array *a = find(c, in, v->name);
        missing[v->id] = !a;
        if (!a) continue;
        if (a->rank > IR_MAX_RANK)
            return diag_error(c->tool->diag, AMPC_REJECTED, DIAG_NOWHERE, "input '%s': rank %d is not supported",
                              v->name, a->rank);
        rt_tensor t = {.name = v->name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
        memcpy(t.dims, a->dims, (size_t)a->rank * sizeof *t.dims);
        in->tensors[in->count++] = t;
    }
    if (in->count == (int)g->inputs.count || (in->partial && select_without(c, g, missing) == AMPC_OK)) return AMPC_OK;
    for (size_t i = 0; i < g->inputs.count; i++)
        if (missing[g->inputs.items[i]->id]) missing_input(c, g->inputs.items[i]);
    return diag_status(c->tool->diag);
}

ampc_status run_inputs_read(run_context *c, const ir_graph *g, run_inputs *in)
{
    const tool_options *o = &c->tool->o;
    if (o->inputs_file) TRY(read_all(c, g, o->inputs_file, in));
    for (int i = 0; i < o->inputs.count; i++) TRY(read_one(c, g, o->inputs.items[i], in));
    return bind(c, g, in);
}
