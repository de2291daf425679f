/* differential.c - draws random ONNX graphs with inputs and runs them; writes all of it, for differential.py.
 *
 * usage: differential FIRST COUNT [--op OPERATOR | --bodies]
 *
 * A seed determines a graph: 1 to 12 nodes of the forms in tests/forms, of one opset from 7 to 23, some sizes symbolic.
 * --op draws that operator more often; --bodies draws only operators with bodies, functions and sequences, nested up to two
 * deep. Each graph runs twice: with all results as outputs, and with some of them, so that
 * ops can be fused. It is written to standard output as
 *     seed i64, opset i64, text of refusal, model, inputs, outputs, results
 * where texts, models and data are a length (i64) and bytes, and lists a count and items. A tensor is name, ONNX type i64,
 * dims (a list of i64), random i64, data. The text is "" if both have run; `results` are those of the first run. */
#include "frontend/onnx.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/forms/block.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_NODES = 12 };

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void put(int64_t v) { fwrite(&v, sizeof v, 1, stdout); }

static void put_bytes(const void *bytes, size_t n)
{
    put((int64_t)n);
    fwrite(bytes, 1, n, stdout);
}

static void put_tensor(const char *name, int type, int rank, const int64_t *dims, bool random, const void *data)
{
    size_t bytes = ir_dtype_size(onnx_type_dtype(type));
    put_bytes(name, strlen(name));
    put(type);
    put(rank);
    for (int i = 0; i < rank; i++) {
        put(dims[i]);
        bytes *= (size_t)dims[i];
    }
    put(random);
    put_bytes(data, bytes);
}

static void put_inputs(const drawing *w)
{
    put(w->n_inputs);
    for (int i = 0; i < w->n_inputs; i++) {
        const tensor *t = &w->inputs[i].t;
        put_tensor(t->name, t->type, t->rank, t->dims, false, w->inputs[i].data);
    }
}

static void put_outputs(const drawing *w, rt_session *s, const int *outputs, int n)
{
    put(n);
    for (int i = 0; i < n; i++) {
        const tensor *t = &w->results[outputs[i]];
        const rt_tensor *got = rt_session_output(s, t->name);
        if (got)
            put_tensor(t->name, (int)onnx_type_of(got->dtype), got->rank, got->dims, w->random[outputs[i]], got->data);
        else put_tensor(t->name, ONNX_bool, 1, (int64_t[]){0}, true, "");
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

/* Some values of the pool become results. */
static void draw_bodies(drawing *w)
{
    static const form f = {.op = "Loop", .types = "f", .low = -2, .high = 2};
    static const int8_t float_types[] = {ONNX_float32, ONNX_float32, ONNX_float32, ONNX_float64};
    const int64_t dims[] = {some_size(w), some_size(w), some_size(w)};
    const tensor shape = fixed_shape(choose(w->c, 4), dims);
    w->nests = true;
    w->type = CHOOSE(w->c, float_types);
    const tensor x = new_operand(w, &f, &shape);
    block b = block_start(w, &f, &x);
    for (int i = 0; i < 16 && b.n_pool < 5; i++) switch (choose(w->c, 6)) {
        case 0: block_if(&b); break;
        case 1:
        case 2: block_loop(&b); break;
        case 3: block_scan(&b); break;
        case 4: block_call(&b); break;
        default: block_sequence(&b, NULL);
        }
    form_results(w, &f, b.pool + 1, b.n_pool - 1);
}

/* ---- one graph ------------------------------------------------------------------------------------------------- */

static void draw(drawing *w, const form *preferred)
{
    const int count = 1 + choose(w->c, MAX_NODES);
    for (int i = 0; i < count && w->n_results < FORM_POOL - 4; i++) {
        const form *f = drawing_any_form(w);
        if (preferred && choose(w->c, 2) && form_since(preferred->op) <= w->m.opset) f = preferred;
        if (!drawing_add(w, f)) return;
    }
}

typedef struct attempt { /* to run a model */
    wire file;
    int outputs[FORM_POOL], n;
    diag *d;
    ir_module *m;
    rt_session *s;
    const char *error; /* NULL: it has run */
} attempt;

static attempt run(drawing *w, bool all)
{
    attempt a = {.d = diag_new(NULL, NULL)};
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    rt_tensor in[FORM_INPUTS];
    o.level = PASS_O0;
    for (int i = 0; i < w->n_inputs; i++) {
        const tensor *t = &w->inputs[i].t;
        in[i] = (rt_tensor){
            .name = t->name, .dtype = onnx_type_dtype(t->type), .rank = t->rank, .data = w->inputs[i].data};
        memcpy(in[i].dims, t->dims, sizeof *t->dims * (size_t)t->rank);
    }
    a.file = drawing_file(w, a.outputs, &a.n, all);
    const bool good = onnx_import_memory(a.file.bytes, a.file.size, "drawn.onnx", NULL, a.d, &a.m) == AMPC_OK &&
                      test_compile(a.m, &o, a.d) == AMPC_OK && rt_session_open(a.m, &device, a.d, &a.s) == AMPC_OK &&
                      rt_session_run(a.s, "infer", in, w->n_inputs, a.d) == AMPC_OK;
    a.error = good ? NULL : diag_first_error(a.d);
    return a;
}

static void attempt_free(attempt *a)
{
    rt_session_close(a->s);
    ir_module_free(a->m);
    diag_free(a->d);
    wire_free(&a->file);
}

static void run_seed(uint64_t seed, const form *preferred, bool bodies)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(seed >> 8 * i);
    choices c = choices_start(bytes, sizeof bytes);
    c.at = sizeof bytes;
    drawing w = drawing_start(&c, 7 + choose(&c, 17));
    if (bodies) draw_bodies(&w);
    else draw(&w, preferred);
    attempt all = run(&w, true), some = run(&w, false);
    const char *error = all.error ? all.error : some.error ? some.error : "";
    put((int64_t)seed);
    put(w.m.opset);
    put_bytes(error, strlen(error));
    put_bytes(some.file.bytes, some.file.size);
    put_inputs(&w);
    put_outputs(&w, some.s, some.outputs, *error ? 0 : some.n);
    put_outputs(&w, all.s, all.outputs, *error ? 0 : all.n);
    fflush(stdout);
    attempt_free(&all);
    attempt_free(&some);
    drawing_free(&w);
}

int main(int argc, char **argv)
{
    const form *preferred = argc == 5 && strcmp(argv[3], "--op") == 0 ? form_find(argv[4]) : NULL;
    const bool bodies = argc == 4 && strcmp(argv[3], "--bodies") == 0;
    if (argc != 3 && !preferred && !bodies) {
        fprintf(stderr, "usage: differential FIRST COUNT [--op OPERATOR | --bodies]\n");
        return 2;
    }
    const uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    for (uint64_t seed = first; seed < first + count; seed++) {
        run_seed(seed, preferred, bodies);
        fflush(stdout);
    }
    return 0;
}
