/* test_penalty.c - penalties of the gradient on the CUDA backend: loss, penalty and gradients are those of the CPU within
 * rounding, in f32, f16 and bf16, and the bits do not depend on how slow the device is. */
#include "tests/compile.h"
#include "tests/cuda/double/double.h"
#include "tests/train/penalty_nets.h"

#include <math.h>

enum { MAX_INPUTS = 2, MAX_OUTPUTS = 24, MAX_COUNT = 256 };

/* The outputs of @grad that are floats. */
typedef struct outcome {
    const char *name[MAX_OUTPUTS];
    double values[MAX_OUTPUTS][MAX_COUNT];
    size_t count[MAX_OUTPUTS];
    int n;
} outcome;

/* The network of the subject in f32, compiled in mixed precision. */
static ir_module *compiled(scratch *t, const subject *s, pass_level level, ir_dtype low)
{
    compile_options o = compile_options_default();
    ir_module *m;
    char *text = strdup(s->text);
    for (char *at = text; (at = strstr(at, "f64")); at += 3) memcpy(at, "f32", 3);
    o.level = level;
    o.low = low;
    o.loss = s->loss;
    o.grad_penalty = s->penalty;
    o.init_scale = 64;
    o.fuse = false; /* fused kernels would be compiled for a minute */
    must(t, ir_parse(text, strlen(text), "net.ir", t->d, &m));
    free(text);
    must(t, test_compile(m, &o, t->d));
    return m;
}

static void read_outputs(scratch *t, const ir_graph *g, rt_session *s, outcome *o)
{
    o->n = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const rt_tensor *v = rt_session_output(s, ir_output_name(n));
        assert_non_null(v);
        must(t, rt_session_fetched(s, t->d));
        assert_true(o->n < MAX_OUTPUTS && count(v) <= MAX_COUNT);
        o->name[o->n] = ir_output_name(n);
        o->count[o->n] = count(v);
        for (size_t i = 0; i < count(v); i++) {
            const char *element = (const char *)v->data + i * ir_dtype_size(v->dtype);
            o->values[o->n][i] = v->dtype == IR_bool ? *element : ir_load_f64(v->dtype, element);
        }
        o->n++;
    }
}

static void run_on(scratch *t, const char *device, const ir_module *m, outcome *o)
{
    const rt_session_options options = {.device = device, .threads = 1, .no_tune = true};
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_grad);
    rt_tensor in[MAX_INPUTS];
    rt_session *s;
    const int inputs = make_inputs(g, in);
    must(t, rt_session_open(m, &options, t->d, &s));
    set_parameters(t, s);
    must(t, rt_session_run(s, "grad", in, inputs, t->d));
    read_outputs(t, g, s, o);
    rt_session_close(s);
    for (int i = 0; i < inputs; i++) free(in[i].data);
}

/* Within `bound` times the largest element of the tensor; a tensor that is zero but for rounding counts as 0.01. */
static void compare(const subject *s, const outcome *a, const outcome *b, double bound)
{
    assert_int_equal(a->n, b->n);
    for (int k = 0; k < a->n; k++) {
        double largest = 1e-2;
        for (size_t i = 0; i < a->count[k]; i++) largest = fmax(largest, fabs(a->values[k][i]));
        for (size_t i = 0; i < a->count[k]; i++)
            if (!(fabs(a->values[k][i] - b->values[k][i]) <= bound * largest))
                fail_msg("%s, %s[%zu]: %.9g, on cuda %.9g", s->name, a->name[k], i, a->values[k][i], b->values[k][i]);
    }
}

TEST_SCRATCH(devices_agree)
{
    static const struct {
        pass_level level;
        ir_dtype low;
        double bound;
    } types[] = {{PASS_O0, IR_f16, 1e-4}, {PASS_O1, IR_f16, 2e-2}, {PASS_O1, IR_bf16, 1e-1}};
    static outcome cpu, cuda, again;
    for (size_t k = 0; k < 3 * (sizeof subjects / sizeof *subjects); k++) {
        const subject *s = &subjects[k / 3];
        ir_module *m = compiled(t, s, types[k % 3].level, types[k % 3].low);
        run_on(t, "cpu", m, &cpu);
        double_mode(DOUBLE_EAGER);
        run_on(t, "cuda", m, &cuda);
        double_mode(DOUBLE_LAZY);
        run_on(t, "cuda", m, &again);
        compare(s, &cpu, &cuda, types[k % 3].bound);
        compare(s, &cuda, &again, 0);
        ir_module_free(m);
    }
}

int main(void)
{
    double_install();
    return test_run();
}
