/* probe.c - implements probe.h. */
#include "tests/forms/probe.h"

#include "frontend/onnx.h"
#include "passes/pass.h"
#include "tests/compile.h"

static const struct {
    const char *op;
    int since;
} operators[] = {
#define FORM(op, since, min_in, max_in, max_out, handler, arg) {#op, since},
#include "frontend/onnx.def"
};

static int draw_opset(choices *c, const char *op)
{
    int since[16], n = 0;
    for (size_t i = 0; i < sizeof operators / sizeof *operators && n < 16; i++)
        if (strcmp(operators[i].op, op) == 0) since[n++] = operators[i].since < 7 ? 7 : operators[i].since;
    if (!n) return 17; /* of another domain */
    const int row = choose(c, n), end = row + 1 < n ? since[row + 1] : 24;
    return since[row] + choose(c, end > since[row] ? end - since[row] : 1);
}

static bool draw(probe *p, unsigned roles)
{
    uint8_t bytes[8] = {(uint8_t)p->seed, (uint8_t)(p->seed >> 8)};
    for (int i = 0; p->form->op[i]; i++) bytes[2 + i % 6] = (uint8_t)(bytes[2 + i % 6] * 31 + p->form->op[i]);
    p->c = choices_start(bytes, sizeof bytes);
    p->c.at = sizeof bytes;
    p->w = drawing_start(&p->c, draw_opset(&p->c, p->form->op));
    p->w.exact = (int)p->type;
    p->w.special = false;
    p->w.roles = roles;
    return drawing_add(&p->w, p->form);
}

int probe_row(const probe *p)
{
    int row = -1;
    for (int i = 0; i < (int)(sizeof operators / sizeof *operators); i++)
        if (strcmp(operators[i].op, p->form->op) == 0 && operators[i].since <= p->w.m.opset) row = i;
    return row;
}

bool probe_is_varied(const probe *p, const form_input *in) { return in->varied && in->t.type == (int)p->type; }

static bool has_varied_operand(const probe *p)
{
    for (int i = 0; i < p->w.n_inputs; i++)
        if (probe_is_varied(p, &p->w.inputs[i])) return true;
    return false;
}

static rt_tensor runtime_tensor(const tensor *t, void *data)
{
    rt_tensor out = {.name = t->name, .dtype = onnx_type_dtype(t->type), .rank = t->rank, .data = data};
    memcpy(out.dims, t->dims, sizeof *out.dims * (size_t)out.rank);
    return out;
}

static bool import(probe *p)
{
    int outputs[FORM_POOL], n;
    wire file = drawing_file(&p->w, outputs, &n, true);
    const ampc_status status = onnx_import_memory(file.bytes, file.size, "drawn.onnx", NULL, p->d, &p->m);
    wire_free(&file);
    for (int i = 0; i < p->w.n_inputs; i++)
        if (p->w.inputs[i].role == FORM_GIVEN) p->in[p->n++] = runtime_tensor(&p->w.inputs[i].t, p->w.inputs[i].data);
    p->n_given = p->n;
    return status == AMPC_OK;
}

/* Adds r, an input of the graph, and its values, which probe_close frees. */
static ir_value *add_factors(probe *p, const tensor *result, const ir_type *type)
{
    char name[16];
    snprintf(name, sizeof name, "r_%s", result->name);
    ir_value *r = ir_graph_input(ir_graph_find(p->m, "forward"), name, type);
    const int64_t count = count_of(result);
    const size_t size = ir_dtype_size(type->dtype);
    char *data = calloc((size_t)count + 1, size);
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(type->dtype, data + (size_t)i * size, 0.5 + 1.5 * (choices_word(&p->c) * 0x1p-32));
    p->in[p->n] = runtime_tensor(result, data);
    p->in[p->n++].name = r->name;
    return r;
}

static ir_value *add_loss(probe *p, ir_builder *b)
{
    ir_graph *g = ir_graph_find(p->m, "forward");
    ir_value *loss = NULL;
    for (int i = 0; i < p->w.n_results; i++) {
        const tensor *result = &p->w.results[i];
        ir_node *output = ir_graph_find_output(g, result->name);
        ir_value *y = output ? output->in[0].value : NULL;
        if (!y || y->type.dtype != onnx_type_dtype((int)p->type) || result->rank < 0) continue;
        int64_t axes[IR_MAX_RANK];
        for (int k = 0; k < y->type.rank; k++) axes[k] = k;
        ir_value *product = ir_binary(b, IR_OP_mul, y, add_factors(p, result, &y->type));
        ir_value *sum = y->type.rank ? ir_reduce_sum(b, product, axes, y->type.rank, false) : product;
        loss = loss ? ir_binary(b, IR_OP_add, loss, sum) : sum;
    }
    return loss;
}

static bool differentiate(probe *p)
{
    ir_graph *g = ir_graph_find(p->m, "forward");
    ir_builder b = pass_builder(g, IR_FORWARD, p->d);
    ir_value *loss = add_loss(p, &b);
    if (!loss) return false;
    compile_options o = compile_options_default();
    ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    if (p->w.roles && test_pass(p->m, "params", &o, p->d) != AMPC_OK) return false;
    g->role = IR_GRAPH_train;
    return test_pass(p->m, "autodiff", &o, p->d) == AMPC_OK;
}

bool probe_open(probe *p, const form *f, uint64_t seed, onnx_type type, unsigned roles)
{
    *p = (probe){.form = f, .seed = seed, .type = type, .d = diag_new(NULL, NULL)};
    return draw(p, roles) && has_varied_operand(p) && import(p) && differentiate(p);
}

void probe_close(probe *p)
{
    for (int i = p->n_given; i < p->n; i++) free(p->in[i].data);
    ir_module_free(p->m);
    drawing_free(&p->w);
    diag_free(p->d);
}

rt_session *probe_session(probe *p, const char *device)
{
    rt_session *s = NULL;
    const rt_session_options o = {.device = device, .threads = 1, .no_fuse = strcmp(device, "cpu") != 0};
    return rt_session_open(p->m, &o, p->d, &s) == AMPC_OK ? s : NULL;
}

bool probe_run(probe *p, rt_session *s)
{
    return rt_session_seed(s, 5, p->d) == AMPC_OK && rt_session_run(s, "forward", p->in, p->n, p->d) == AMPC_OK;
}
