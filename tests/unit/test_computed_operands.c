/* test_computed_operands.c - operands that are computed at run time and known as far as the lowering needs them. */
#include "tests/unit/numeric_gradients.h"

static void add_integers(model *m, const char *name, const char *dims, const int64_t *values, int n)
{
    model_tensor(m, tensor_new(name, ONNX_int64, dims, values, (size_t)n * sizeof *values));
}

/* ---- Slice ----------------------------------------------------------------------------------------- */

enum { COLUMNS = 7, SIZE = 3 };

/* i = round(p) as a list of one element */
static model indexed(void)
{
    model m = model_new(17);
    node cast = node_new("Cast", "r", "c");
    model_input(&m, "x", ONNX_float64, "5,7");
    model_input(&m, "p", ONNX_float64, "");
    add_integers(&m, "zero", "1", (int64_t[]){0}, 1);
    add_integers(&m, "size", "", (int64_t[]){SIZE}, 1);
    model_node(&m, "Round", "p", "r");
    node_int(&cast, "to", ONNX_int64);
    model_add(&m, &cast);
    model_node(&m, "Unsqueeze", "c,zero", "i");
    model_output(&m, "y", 0, NULL);
    return m;
}

/* x[1:4, i:i+3:2] with i = round(p): the bounds are lists of a number and a computed one. */
static wire sliced(void)
{
    model m = indexed();
    node starts = node_new("Concat", "one,i", "starts"), ends = node_new("Concat", "four,end", "ends");
    add_integers(&m, "one", "1", (int64_t[]){1}, 1);
    add_integers(&m, "four", "1", (int64_t[]){4}, 1);
    add_integers(&m, "axes", "2", (int64_t[]){0, -1}, 2);
    add_integers(&m, "steps", "2", (int64_t[]){1, 2}, 2);
    model_node(&m, "Add", "size,c", "past");
    model_node(&m, "Unsqueeze", "past,zero", "end");
    node_int(&starts, "axis", 0);
    node_int(&ends, "axis", 0);
    model_add(&m, &starts);
    model_add(&m, &ends);
    model_node(&m, "Slice", "x,starts,ends,axes,steps", "y");
    return model_finish(&m);
}

static bool is_x(const char *input) { return strcmp(input, "x") == 0; }

TEST_SCRATCH(slices_from_computed_starts)
{
    problem p = {.t = t};
    open_problem(&p, sliced());
    for (int i = -COLUMNS - 1; i <= COLUMNS; i++) {
        const int first = i < 0 ? i + COLUMNS : i;
        const bool fits = first >= 0 && first + SIZE <= COLUMNS && (i < 0) == (i + SIZE < 0);
        p.data[1][0] = i;
        const ampc_status status = rt_session_run(p.session, "forward", p.in, p.n, p.t->d);
        assert_int_equal(status, fits ? AMPC_OK : AMPC_REJECTED);
        if (!fits) {
            assert_non_null(strstr(diag_first_error(p.t->d), "outside of [-7,7)"));
            diag_clear(p.t->d);
            continue;
        }
        const rt_tensor *y = rt_session_output(p.session, "y");
        assert_int_equal(y->dims[0], 3);
        assert_int_equal(y->dims[1], 2);
        for (int k = 0; k < 6; k++)
            assert_true(((const double *)y->data)[k] == p.data[0][(1 + k / 2) * COLUMNS + first + k % 2 * 2]);
    }
    close_problem(&p);
    check_gradients(t, sliced(), is_x);
}

static wire sliced_by_two_values(void)
{
    model m = indexed();
    model_node(&m, "Neg", "i", "end");
    model_node(&m, "Slice", "x,i,end", "y");
    return model_finish(&m);
}

TEST_SCRATCH(sizes_of_slices_are_known)
{
    ir_module *m = NULL;
    wire file = sliced_by_two_values();
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, t->d, &m), AMPC_UNSUPPORTED);
    assert_non_null(
        strstr(diag_first_error(t->d), "the size of its result on axis 0 depends on values that are computed"));
    wire_free(&file);
}

/* ---- Pad ------------------------------------------------------------------------------------------- */

/* Pads the columns of x[2,N] by 1, or by half of them, and to eight of them or a multiple of that. */
typedef enum amount { TO_EIGHT, TO_MULTIPLE, BY_HALF, AMOUNTS } amount;

static wire padded(amount by, const char *mode)
{
    model m = model_new(19);
    node join = node_new("Concat", by == BY_HALF ? "zero,a,zero,a" : "zero,one,zero,a", "pads");
    node pad = node_new("Pad", "x,pads", "y");
    model_input(&m, "x", ONNX_float64, "2,N");
    add_integers(&m, "zero", "1", (int64_t[]){0}, 1);
    add_integers(&m, "one", "1", (int64_t[]){1}, 1);
    add_integers(&m, "two", "1", (int64_t[]){2}, 1);
    add_integers(&m, "eight", "1", (int64_t[]){8}, 1);
    model_node(&m, "Shape", "x", "shape");
    model_node(&m, "Gather", "shape,one", "n");
    model_node(&m, "Neg", "n", "less");
    if (by == TO_EIGHT) model_node(&m, "Sub", "eight,n", "a");
    if (by == TO_MULTIPLE) model_node(&m, "Mod", "less,eight", "a");
    if (by == BY_HALF) model_node(&m, "Div", "n,two", "a");
    node_int(&join, "axis", 0);
    node_text(&pad, "mode", mode);
    model_add(&m, &join);
    model_add(&m, &pad);
    model_output(&m, "y", 0, NULL);
    return model_finish(&m);
}

/* With the size bound, the amounts are numbers. */
static void compare_pads(scratch *t, amount by, const char *mode, int64_t columns)
{
    const onnx_dim_binding size = {"N", columns};
    const onnx_import_options bound = {.dims = &size, .n_dims = 1};
    problem p = {.t = t, .symbol = columns}, q = {.t = t};
    open_problem(&p, padded(by, mode));
    open_problem_with(&q, padded(by, mode), &bound);
    loss_of(&p);
    loss_of(&q);
    const rt_tensor *got = rt_session_output(p.session, "y"), *want = rt_session_output(q.session, "y");
    assert_int_equal(got->dims[1], want->dims[1]);
    assert_memory_equal(got->data, want->data, (size_t)(2 * want->dims[1]) * sizeof(double));
    check_problem(&p, is_x);
    close_problem(&p);
    close_problem(&q);
}

TEST_SCRATCH(pads_by_sizes)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    for (int by = 0; by < AMOUNTS; by++)
        for (int k = 0; k < 4; k++)
            for (int64_t columns = 5; columns <= 11; columns += 3) compare_pads(t, by, modes[k], columns);
}

/* ---- Loop ------------------------------------------------------------------------------------------ */

static void cast_to_float(model *m, const char *from, const char *to)
{
    node n = node_new("Cast", from, to);
    node_int(&n, "to", ONNX_float32);
    model_add(m, &n);
}

/* h' = tanh(h + x[k]), while k + 1 < n and i < n, compared as floats, as tf2onnx writes the loops of Keras */
static model while_body(void)
{
    model body = model_new(17);
    model_input(&body, "i", ONNX_int64, "");
    model_input(&body, "go", ONNX_bool, "");
    model_input(&body, "k", ONNX_int64, "");
    model_input(&body, "h", ONNX_float64, "3");
    model_node(&body, "Add", "k,one", "next");
    model_node(&body, "Gather", "x,k", "row");
    model_node(&body, "Add", "h,row", "sum");
    model_node(&body, "Tanh", "sum", "h2");
    model_node(&body, "Identity", "h2", "stacked");
    cast_to_float(&body, "next", "f");
    cast_to_float(&body, "i", "g");
    model_node(&body, "Less", "f,n", "under");
    model_node(&body, "Less", "g,n", "left");
    model_node(&body, "And", "left,under", "going");
    model_output(&body, "going", ONNX_bool, "");
    model_output(&body, "next", ONNX_int64, "");
    model_output(&body, "h2", ONNX_float64, "3");
    model_output(&body, "stacked", ONNX_float64, "3");
    return body;
}

/* n is the length of x, or the float 4. */
static wire counting_loop(bool any_length)
{
    const float zero = 0, four = 4;
    model m = model_new(17), body = while_body();
    node loop = node_new("Loop", ",go,first,h", "k2,last,rows");
    model_input(&m, "x", ONNX_float64, any_length ? "N,3" : "4,3");
    model_input(&m, "h", ONNX_float64, "3");
    add_integers(&m, "first", "", (int64_t[]){0}, 1);
    add_integers(&m, "one", "", (int64_t[]){1}, 1);
    model_tensor(&m, tensor_new("start", ONNX_float32, "", &zero, sizeof zero));
    if (any_length) {
        model_node(&m, "Shape", "x", "shape");
        model_node(&m, "Gather", "shape,first", "length");
        cast_to_float(&m, "length", "n");
    } else {
        model_tensor(&m, tensor_new("n", ONNX_float32, "", &four, sizeof four));
    }
    model_node(&m, "Less", "start,n", "below");
    model_node(&m, "And", "below,below", "go");
    node_graph(&loop, "body", &body);
    model_add(&m, &loop);
    model_output(&m, "last", 0, NULL);
    model_output(&m, "rows", 0, NULL);
    return model_finish(&m);
}

static bool every(const char *input) { return *input != 0; }
static bool only_h(const char *input) { return strcmp(input, "h") == 0; }

TEST_SCRATCH(loops_that_count)
{
    for (int64_t length = -1; length <= 4; length += length < 1 ? 1 : 3) { /* -1: known */
        const int64_t rows = length < 0 ? 4 : length;
        problem p = {.t = t, .symbol = length};
        open_problem(&p, counting_loop(length >= 0));
        loss_of(&p);
        const rt_tensor *got = rt_session_output(p.session, "rows");
        assert_int_equal(got->dims[0], rows);
        for (int k = 0; k < 3; k++) {
            double h = p.data[1][k];
            for (int64_t i = 0; i < rows; i++) {
                h = tanh(h + p.data[0][i * 3 + k]);
                assert_true(fabs(((const double *)got->data)[i * 3 + k] - h) < 1e-12);
            }
        }
        check_problem(&p, rows ? every : only_h);
        for (const ir_node *n = ir_graph_find(p.module, "forward")->first; n; n = n->next)
            assert_true(n->op != IR_OP_loop || length >= 0);
        close_problem(&p);
    }
}
