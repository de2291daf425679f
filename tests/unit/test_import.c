/* test_import.c - imports ONNX models: one case for each form of an operator that changed between opsets, the
 * treatment of initializers, and rejected models with their status and message.
 *
 * Most cases are one row: a node and the expected line of IR. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

/* ---- running an import ----------------------------------------------------------------------- */

static ampc_status import_bytes(scratch *t, wire file, const onnx_import_options *o, ir_module **m)
{
    ampc_status status = onnx_import_memory(file.bytes, file.size, "m.onnx", o, t->d, m);
    wire_free(&file);
    return status;
}

/* Collapses runs of blanks, since the printer aligns columns. */
static char *squeezed(arena *a, const char *text)
{
    char *out = arena_strdup(a, text), *to = out;
    for (const char *p = text; *p; p++)
        if (*p != ' ' || p[1] != ' ') *to++ = *p;
    *to = 0;
    return out;
}

/* Asserts that the text of the imported model contains `text`. */
static void expect_text(const ir_module *m, const char *text)
{
    arena *a = arena_new(0);
    jmp_buf guard;
    if (setjmp(guard)) fail();
    arena_set_guard(a, &guard);
    const char *printed = squeezed(a, ir_print(m, a));
    if (!strstr(printed, squeezed(a, text))) fail_msg("expected '%s' in:\n%s", text, printed);
    arena_free(a);
}

static void expect_import(scratch *t, wire file, const char *text)
{
    ir_module *m = NULL;
    if (import_bytes(t, file, NULL, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_int_equal(ir_verify(m, t->d), AMPC_OK);
    expect_text(m, text);
    ir_module_free(m);
}

static void expect_refusal(scratch *t, wire file, ampc_status status, const char *text)
{
    ir_module *m = NULL;
    ampc_status got = import_bytes(t, file, NULL, &m);
    if (got != status) fail_msg("status %d, not %d: %s", (int)got, (int)status, diag_first_error(t->d));
    assert_null(m);
    scratch_expect(t, text);
}

/* Returns the model x -> node -> y, with the operands of the rows below as initializers. */
static wire one_node(int opset, const char *dims, node *n)
{
    model m = model_new(opset);
    model_input(&m, "x", ONNX_float32, dims);
    model_tensor(&m, TENSOR_INTS("one", "1", 1));
    model_tensor(&m, TENSOR_INTS("two", "1", 2));
    model_tensor(&m, TENSOR_INTS("last", "1", -1));
    model_tensor(&m, TENSOR_INTS("zero_two", "2", 0, 2));
    model_tensor(&m, TENSOR_INTS("one_one", "2", 1, 1));
    model_tensor(&m, tensor_new("none", ONNX_int64, "0", NULL, 0));
    model_tensor(&m, TENSOR_INTS("pads", "4", 0, 1, 0, 2));
    model_tensor(&m, TENSOR_INTS("two_two", "3", -1, 2, 2));
    model_tensor(&m, TENSOR_INTS("huge", "2", 1 << 30, 1 << 30));
    model_tensor(&m, TENSOR_INTS("far", "1", INT64_MAX));
    model_tensor(&m, TENSOR_INTS("start", "1", INT64_MIN));
    model_tensor(&m, TENSOR_FLOATS("w", "3,2", 1, 2, 3, 4, 5, 6));
    model_tensor(&m, TENSOR_FLOATS("low", "", -1));
    model_tensor(&m, TENSOR_FLOATS("high", "", 6));
    model_tensor(&m, tensor_new("yes", ONNX_bool, "", "\1", 1));
    model_add(&m, n);
    model_output(&m, "y", 0, NULL);
    return model_finish(&m);
}

/* ---- forms of operators ---------------------------------------------------------------------- */

typedef struct form {
    int opset;
    const char *dims; /* of x */
    const char *op, *inputs;
    const char *attributes; /* "name=1" int, "name=[1,2]" ints, "name='text'", "name=0.5f"; separated by blanks */
    const char *expect;
} form;

static void add_attribute(node *n, const char *text)
{
    char name[64], value[64];
    size_t k = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)k, text);
    snprintf(value, sizeof value, "%s", text + k + 1);
    size_t end = strlen(value) - 1;
    bool quoted = *value == '\'' || *value == '[';
    if (quoted) value[end] = 0;
    if (*value == '\'') node_text(n, name, value + 1);
    else if (*value == '[') node_ints(n, name, value + 1);
    else if (value[end] == 'f') node_float(n, name, strtof(value, NULL));
    else node_int(n, name, atoll(value));
}

static node form_node(const form *f)
{
    node n = node_new(f->op, f->inputs, "y");
    char copy[256], *save = NULL;
    snprintf(copy, sizeof copy, "%s", f->attributes);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) add_attribute(&n, p);
    return n;
}

/* clang-format off */
static const form forms[] = {
    /* changes before opset 18 */
    {11, "2,3,4", "Softmax", "x", "", "softmax %reshape {axis=1} : f32[2,12]"},
    {13, "2,3,4", "Softmax", "x", "", "softmax @x {axis=2} : f32[2,3,4]"},
    {12, "2,3,4", "LogSoftmax", "x", "axis=2", "log_softmax @x {axis=2} : f32[2,3,4]"},
    {11, "2,1,4", "Squeeze", "x", "axes=[1]", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {13, "2,1,4", "Squeeze", "x,one", "", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {13, "2,1,4", "Squeeze", "x", "", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {11, "2,4", "Unsqueeze", "x", "axes=[-1]", "reshape @x {shape=[2,4,1]} : f32[2,4,1]"},
    {13, "2,4", "Unsqueeze", "x,one", "", "reshape @x {shape=[2,1,4]} : f32[2,1,4]"},
    {11, "2,4", "ReduceSum", "x", "axes=[-1] keepdims=0", "reduce_sum @x {axes=[1], keepdims=false} : f32[2]"},
    {13, "2,4", "ReduceSum", "x,one", "", "reduce_sum @x {axes=[1]} : f32[2,1]"},
    {13, "2,4", "ReduceSum", "x", "keepdims=0", "reduce_sum @x {axes=[0,1], keepdims=false} : f32[]"},
    {13, "2,4", "ReduceSum", "x,none", "noop_with_empty_axes=1", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {9, "5,6", "Slice", "x", "starts=[1] ends=[-1] axes=[0]",
     "slice @x {start=[1,0], size=[3,6], step=[1,1]} : f32[3,6]"},
    {10, "5,6", "Slice", "x,one,far,one,two", "", "slice @x {start=[0,1], size=[5,3], step=[1,2]} : f32[5,3]"},
    {13, "5,6", "Slice", "x,last,start,one,last", "", "slice @x {start=[0,5], size=[5,6], step=[1,-1]} : f32[5,6]"},
    {13, "N,3", "Slice", "x,last,far", "", "slice @x {start=[max(0,N-1),0], size=[N-max(0,N-1),3], step=[1,1]}"},
    {13, "N,3", "Slice", "x,one,two", "", "slice @x {start=[1,0], size=[-max(0,N-2)+max(0,N-1),3], step=[1,1]}"},
    {13, "N,3", "Slice", "x,last,start,,last", "", "slice @x {start=[N-1,0], size=[N,3], step=[-1,1]} : f32[N,3]"},
    {10, "2,3", "Pad", "x", "pads=[0,1,0,2] mode='edge'",
     "pad @x {before=[0,1], after=[0,2], mode=\"edge\"} : f32[2,6]"},
    {11, "2,3", "Pad", "x,pads,low", "", "pad @x, @low {before=[0,1], after=[0,2]} : f32[2,6]"},
    {10, "2,3", "Clip", "x", "min=0.0f max=6.0f", "clip @x, @c.f32.0, @c.f32.40c00000 : f32[2,3]"},
    {11, "2,3", "Clip", "x,,high", "", "clip @x, _, @high : f32[2,3]"},
    {11, "4,2", "Split", "x", "axis=0 split=[4]", "split @x {sizes=[4]} : f32[4,2]"},
    {11, "2,3", "Gemm", "x,w", "", "matmul @x, @w : f32[2,2]"},
    {11, "2,3", "Dropout", "x", "ratio=0.25f", "dropout @x, @rng {ratio=0.25} : f32[2,3], bool[2,3]"},
    {11, "2,3", "Dropout", "x", "ratio=0.0f", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {13, "2,3", "Dropout", "x", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {13, "N,3", "Reshape", "x,last", "", "reshape @x {shape=[3*N]} : f32[3*N]"},
    {15, "N,3", "Shape", "x", "start=1", "output \"y\" = @"},
    {15, "N,3", "Shape", "x", "end=1", "dims {value=[N]} : i64[1]"},
    {15, "2,3", "CastLike", "x,one", "", "cast @x {to=i64} : i64[2,3]"},
    {9, "2,3", "Flatten", "x", "axis=0", "reshape @x {shape=[1,6]} : f32[1,6]"},
    {9, "N,1,5,5", "MaxPool", "x", "kernel_shape=[2,2] strides=[2,2] auto_pad='SAME_LOWER'",
     "max_pool @x {kernel=[2,2], strides=[2,2], pads=[1,1,0,0]"},
    {10, "N,1,5,5", "AveragePool", "x", "kernel_shape=[2,2] ceil_mode=1 count_include_pad=1",
     "ceil=true, count_pad=true"},
    {14, "2,3", "Trilu", "x", "upper=0", "trilu @x {upper=false} : f32[2,3]"},
    {13, "2,3", "Tile", "x,one_one", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {11, "2,3", "Concat", "x,x", "axis=-1", "concat @x, @x {axis=1} : f32[2,6]"},
    /* changes in opsets 18 to 23 */
    {18, "2,4", "ReduceMean", "x,one", "keepdims=0", "reduce_mean @x {axes=[1], keepdims=false} : f32[2]"},
    {18, "2,4", "ReduceMean", "x", "noop_with_empty_axes=1", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {18, "2,4", "ReduceMean", "x", "", "reduce_mean @x {axes=[0,1]} : f32[1,1]"},
    {18, "2,3", "Pad", "x,one_one,,last", "", "pad @x {before=[0,1], after=[0,1]} : f32[2,5]"},
    {19, "2,3", "Pad", "x,one_one,,one", "mode='wrap'",
     "pad @x {before=[0,1], after=[0,1], mode=\"wrap\"} : f32[2,5]"},
    {19, "2,3", "Cast", "x", "to=10 saturate=1", "cast @x {to=f16} : f16[2,3]"},
    {19, "2,3", "CastLike", "x,one", "saturate=0", "cast @x {to=i64} : i64[2,3]"},
    {19, "2,3", "Reshape", "x,last", "allowzero=1", "reshape @x {shape=[6]} : f32[6]"},
    {19, "N,1,8,8", "AveragePool", "x", "kernel_shape=[2,2] dilations=[2,2]", "dilations=[2,2]} : f32[N,1,6,6]"},
    {19, "2,3", "Equal", "x,x", "", "equal @x, @x : bool[2,3]"},
    {19, "2,N", "Size", "x", "", "dims {value=[2*N]} : i64[1]"},
    {20, "2,3", "Gelu", "x", "", "gelu @x : f32[2,3]"},
    {20, "2,3", "Gelu", "x", "approximate='tanh'", "gelu @x {tanh=true} : f32[2,3]"},
    {21, "2,3", "Transpose", "x", "perm=[1,0]", "transpose @x {perm=[1,0]} : f32[3,2]"},
    {21, "2,1", "Squeeze", "x,one", "", "reshape @x {shape=[2]} : f32[2]"},
    {21, "2,3", "Unsqueeze", "x,last", "", "reshape @x {shape=[2,3,1]} : f32[2,3,1]"},
    {21, "2,3", "Flatten", "x", "axis=-1", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {21, "2,3", "Identity", "x", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {22, "2,3", "Round", "x", "", "round @x : f32[2,3]"},
    {20, "2,3", "ConstantOfShape", "two", "", "const @y : f32[2] = [0, 0]"},
    {21, "N,3", "Shape", "x", "start=-2 end=-1", "dims {value=[N]} : i64[1]"},
    {22, "2,3", "Softplus", "x", "", "softplus @x : f32[2,3]"},
    {22, "2,3", "Softsign", "x", "", "softsign @x : f32[2,3]"},
    {22, "2,3", "Cos", "x", "", "cos @x : f32[2,3]"},
    {22, "1,1,9", "AveragePool", "x", "kernel_shape=[3] strides=[3]", "avg_pool @x {kernel=[3], strides=[3]"},
    {22, "2,3", "Dropout", "x", "seed=7", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {22, "1,1,N", "MaxPool", "x", "kernel_shape=[3] strides=[2] pads=[1,1] ceil_mode=1",
     "ceil=true} : f32[1,1,floor(N/2)+1]"},
    {18, "N,3", "Split", "x", "num_outputs=1", "split @x {sizes=[N]}"},
    {22, "N,1,5,5", "MaxPool", "x", "kernel_shape=[3,3]", "max_pool @x {kernel=[3,3], strides=[1,1]"},
    {22, "N,1,5,5", "GlobalAveragePool", "x", "", "reduce_mean @x {axes=[2,3]} : f32[N,1,1,1]"},
    {23, "2,3", "Cast", "x", "to=16", "cast @x {to=bf16} : bf16[2,3]"},
};
/* clang-format on */

static void operator_forms(void **state)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        node n = form_node(&forms[i]);
        wire file = one_node(forms[i].opset, forms[i].dims, &n);
        expect_import(*state, file, forms[i].expect);
    }
}

/* ---- rejected nodes -------------------------------------------------------------------------- */

typedef struct refusal {
    form form; /* `expect` is a part of the message */
    ampc_status status;
} refusal;

/* clang-format off */
static const refusal refusals[] = {
    {{13, "2,3", "Softmax", "x", "axis=2", "axis 2 is out of range for rank 2"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axis=0 axis=1", "duplicate attribute 'axis'"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axis=[0]", "attribute 'axis' has type INTS, not INT"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axes=0", "unknown attribute 'axes' in opset 13"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x,one", "", "has 2 inputs"}, AMPC_REJECTED},
    {{13, "2,3", "Add", "x,", "", "has 1 inputs"}, AMPC_REJECTED},
    {{13, "2,3", "Where", ",x,x", "", "input 0 is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Transpose", "x", "perm=[0]", "perm has 1 elements"}, AMPC_REJECTED},
    {{13, "2,3", "Transpose", "x", "perm=[1,1]", "duplicate axis 1"}, AMPC_REJECTED},
    {{13, "2,3", "Cast", "x", "", "attribute 'to' is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Cast", "x", "to=8", "cast to string"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Cast", "x", "to=99", "cast to unknown"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Concat", "x", "", "attribute 'axis' is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Dropout", "x,high,yes", "", "ratio is 6"}, AMPC_REJECTED},
    {{11, "2,3", "Dropout", "x", "ratio=1.5f", "ratio is 1.5"}, AMPC_REJECTED},
    {{13, "2,3", "Reshape", "x,two", "", "node 'Reshape_0' (Reshape)"}, AMPC_REJECTED},
    {{13, "N,3", "Reshape", "x,two_two", "", "cannot divide 3*N elements by 4"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Squeeze", "x,one", "", "dimension 1 is 3, not 1"}, AMPC_REJECTED},
    {{13, "2,3", "Tile", "x,one", "", "1 repeats for rank 2"}, AMPC_REJECTED},
    {{18, "2,3", "Pad", "x,two,,one", "", "1 padding amounts for 1 axes"}, AMPC_REJECTED},
    {{18, "2,3", "Pad", "x,x", "", "computed at run time"}, AMPC_UNSUPPORTED},
    {{13, "1,1,9", "MaxPool", "x", "", "attribute 'kernel_shape' is missing"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[0]", "kernel_shape[0] = 0"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] strides=[0]", "strides[0] = 0"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] pads=[1]", "pads has 1 elements, not 2"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] dilations=[1,1]", "dilations has 2"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] auto_pad='MAYBE'", "unknown auto_pad 'MAYBE'"}, AMPC_REJECTED},
    {{13, "1,1,N", "MaxPool", "x", "kernel_shape=[2] strides=[2] auto_pad='SAME_UPPER'", "bind"}, AMPC_UNSUPPORTED},
    {{18, "2,3", "Split", "x", "num_outputs=2", "num_outputs is 2, but there are 1"}, AMPC_REJECTED},
    {{20, "2,3", "Gelu", "x", "approximate='sigmoid'", "approximate is 'sigmoid'"}, AMPC_REJECTED},
    {{17, "2,3", "Gelu", "x", "", "operator Gelu needs opset 20 or later, the model has 17"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "ConstantOfShape", "x", "", "computed at run time"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "ConstantOfShape", "last", "", "dimension 0 is negative (-1)"}, AMPC_REJECTED},
    {{13, "1,1", "Expand", "x,huge", "", "too large"}, AMPC_REJECTED},
    {{13, "2,3", "Nonsense", "x", "", "operator Nonsense is not supported (1 node)"}, AMPC_UNSUPPORTED},
};
/* clang-format on */

static void refused_forms(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        node n = form_node(&refusals[i].form);
        wire file = one_node(refusals[i].form.opset, refusals[i].form.dims, &n);
        expect_refusal(*state, file, refusals[i].status, refusals[i].form.expect);
    }
}

/* ---- rejected graphs ------------------------------------------------------------------------- */

static model small_model(int opset)
{
    model m = model_new(opset);
    model_input(&m, "x", ONNX_float32, "2,3");
    return m;
}

static void expect_graph_refusal(scratch *t, model *m, ampc_status status, const char *text)
{
    model_output(m, "y", 0, NULL);
    expect_refusal(t, model_finish(m), status, text);
}

static void names_are_single_assignment(void **state)
{
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_node(&m, "Abs", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "node 'Abs_1' (Abs): error: output 'y' is already the name");
    m = small_model(17);
    model_node(&m, "Relu", "x", "x");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "output 'x' is already the name");
    m = small_model(17);
    model_input(&m, "x", ONNX_float32, "2,3");
    model_node(&m, "Relu", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "duplicate graph input 'x'");
    m = small_model(17);
    model_tensor(&m, TENSOR_FLOATS("w", "1", 1));
    model_tensor(&m, TENSOR_FLOATS("w", "1", 1));
    model_node(&m, "Mul", "x,w", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "duplicate initializer 'w'");
}

static void order_of_nodes(void **state)
{
    model m = small_model(17);
    model_node(&m, "Relu", "h", "y");
    model_node(&m, "Relu", "x", "h");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "reads 'h' before it is defined: nodes are not sorted");
    m = small_model(17);
    model_node(&m, "Add", "x,b", "a");
    model_node(&m, "Relu", "a", "b");
    model_node(&m, "Relu", "b", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "node 'Add_0' (Add): error: is part of a cycle through 'b'");
    m = small_model(17);
    model_node(&m, "Add", "x,nothing", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "reads 'nothing', which is not defined");
    m = small_model(17);
    model_node(&m, "Relu", "x", "z");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "graph output 'y' is not defined");
}

static void unsupported_operators_are_listed_at_once(void **state)
{
    scratch *t = *state;
    model m = small_model(17);
    model_node(&m, "Foo", "x", "a");
    model_node(&m, "Foo", "a", "b");
    node n = node_new("Bar", "b", "y");
    wire_text(&n, 7, "com.example");
    model_add(&m, &n);
    model_output(&m, "y", 0, NULL);
    ir_module *out;
    assert_int_equal(import_bytes(t, model_finish(&m), NULL, &out), AMPC_UNSUPPORTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 2);
    scratch_expect(t, "node 'Foo_0' (Foo): error: operator Foo is not supported (2 nodes)");
}

static void versions(void **state)
{
    static const struct {
        int opset, ir_version;
        ampc_status status;
        const char *text;
    } rows[] = {
        {0, 8, AMPC_REJECTED, "opset version 0"},
        {-1, 8, AMPC_REJECTED, "opset version -1"},
        {99, 8, AMPC_UNSUPPORTED, "opset 99 is not supported"},
        {17, 0, AMPC_REJECTED, "invalid ir_version 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = small_model(rows[i].opset);
        m.ir_version = rows[i].ir_version;
        model_node(&m, "Relu", "x", "y");
        expect_graph_refusal(*state, &m, rows[i].status, rows[i].text);
    }
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", 0, NULL);
    wire file = model_finish(&m);
    model_opset(&file, "ai.onnx", 17);
    expect_refusal(*state, file, AMPC_REJECTED, "duplicate opset import");
}

static void declared_types(void **state)
{
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_value(&m, 13, "y", ONNX_float32, "2,4");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "the declared shape of 'y' contradicts");
    m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_value(&m, 13, "y", ONNX_int64, "2,3");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "'y' is declared as int64, but is f32");
    m = model_new(17);
    model_input(&m, "x", ONNX_string, "2");
    model_node(&m, "Identity", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_UNSUPPORTED, "element type string");
    m = model_new(17);
    model_input(&m, "x", ONNX_float32, "-2");
    model_node(&m, "Identity", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "is negative");
    m = model_new(17);
    model_input(&m, "x", ONNX_float32, NULL);
    model_node(&m, "Identity", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_UNSUPPORTED, "has no shape");
}

/* ---- storage --------------------------------------------------------------------------------- */

static void parameters_and_constants(void **state)
{
    model m = model_new(11);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_input(&m, "w", ONNX_float32, "2,2"); /* initializers listed as inputs, as in old files */
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("bound", "", 6));
    model_tensor(&m, TENSOR_FLOATS("exponent", "1", 2));
    model_tensor(&m, TENSOR_FLOATS("onnx::Mul_7", "", 0.5));
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 2));
    model_tensor(&m, TENSOR_FLOATS("unread", "1", 2));
    model_node(&m, "MatMul", "x,w", "a");
    model_node(&m, "Clip", "a,,bound", "b");
    model_node(&m, "Pow", "b,exponent", "c");
    model_node(&m, "Mul", "c,onnx::Mul_7", "d");
    model_node(&m, "Reshape", "d,shape", "y");
    model_output(&m, "y", 0, NULL);
    ir_module *out;
    assert_int_equal(import_bytes(*state, model_finish(&m), NULL, &out), AMPC_OK);
    assert_int_equal(ir_storage_find(out, "w")->kind, IR_PARAM);
    assert_int_equal(ir_storage_find(out, "bound")->kind, IR_CONST);
    assert_int_equal(ir_storage_find(out, "exponent")->kind, IR_PARAM);
    assert_int_equal(ir_storage_find(out, "onnx::Mul_7")->kind, IR_CONST);
    assert_null(ir_storage_find(out, "shape"));
    assert_null(ir_storage_find(out, "unread"));
    assert_int_equal(out->graphs.items[0]->inputs.count, 1);
    ir_module_free(out);
}

/* Large weights are not read: the module stores their location. */
static void weights_stay_in_their_file(void **state)
{
    scratch *t = *state;
    float data[1000];
    for (int i = 0; i < 1000; i++) data[i] = (float)i;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,1000");
    model_tensor(&m, tensor_new("w", ONNX_float32, "1000,1", data, sizeof data));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", 0, NULL);
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    ir_module *out;
    assert_int_equal(onnx_import(scratch_path(t, "m.onnx"), NULL, t->d, &out), AMPC_OK);
    const ir_data *d = &ir_storage_find(out, "w")->data;
    assert_int_equal(d->kind, IR_DATA_FILE);
    assert_string_equal(d->path, scratch_path(t, "m.onnx"));
    assert_int_equal(d->length, sizeof data);
    assert_memory_equal(file.bytes + d->offset, data, sizeof data);
    ir_module_free(out);
    wire_free(&file);
    assert_int_equal(onnx_import("/nonexistent/m.onnx", NULL, t->d, &out), AMPC_IO);
    diag_clear(t->d);
}

static void batch_norm_model(model *m, int opset, const char *outputs)
{
    *m = model_new(opset);
    model_input(m, "x", ONNX_float32, "N,2,3");
    model_tensor(m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("bias", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("mean", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("var", "2", 1, 2));
    node n = node_new("BatchNormalization", "x,scale,bias,mean,var", outputs);
    if (opset >= 14) node_int(&n, "training_mode", strchr(outputs, ',') != NULL);
    model_add(m, &n);
    model_output(m, "y", 0, NULL);
}

static void running_statistics_are_states(void **state)
{
    static const struct {
        int opset;
        const char *outputs;
        bool training;
    } rows[] = {{9, "y", false}, {9, "y,m,v,sm,sv", true}, {14, "y", false}, {14, "y,m,v", true}, {15, "y,m,v", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m;
        batch_norm_model(&m, rows[i].opset, rows[i].outputs);
        ir_module *out;
        assert_int_equal(import_bytes(*state, model_finish(&m), NULL, &out), AMPC_OK);
        assert_int_equal(ir_verify(out, ((scratch *)*state)->d), AMPC_OK);
        assert_int_equal(ir_storage_find(out, "mean")->kind, IR_STATE);
        assert_int_equal(ir_storage_find(out, "var")->kind, IR_STATE);
        assert_int_equal(ir_storage_find(out, "scale")->kind, IR_PARAM);
        const ir_node *last = out->graphs.items[0]->last;
        assert_int_equal(last->op, rows[i].training ? IR_OP_store : IR_OP_output);
        if (rows[i].training) expect_text(out, "update:\n  store @mean, %m\n  store @var, %v\n");
        ir_module_free(out);
    }
}

static void outputs_may_be_inputs_or_initializers(void **state)
{
    model m = small_model(17);
    model_tensor(&m, TENSOR_FLOATS("w", "1", 2));
    model_output(&m, "x", 0, NULL);
    model_output(&m, "w", 0, NULL);
    expect_import(*state, model_finish(&m), "output \"x\" = @x\n  output \"w\" = @w");
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void symbols_and_bindings(void **state)
{
    scratch *t = *state;
    for (int bound = 0; bound < 2; bound++) {
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "batch,?,4");
        model_node(&m, "Relu", "x", "y");
        model_output(&m, "y", 0, NULL);
        onnx_dim_binding dims[] = {{"batch", 8}, {"x_dim1", 5}};
        onnx_import_options o = {.dims = dims, .n_dims = bound ? 2 : 0};
        ir_module *out;
        assert_int_equal(import_bytes(t, model_finish(&m), &o, &out), AMPC_OK);
        expect_text(out, bound ? "@x : f32[8,5,4]" : "@x : f32[batch,x_dim1,4]");
        ir_module_free(out);
    }
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", 0, NULL);
    onnx_import_options o = {.dims = &(onnx_dim_binding){"nowhere", 1}, .n_dims = 1};
    ir_module *out;
    assert_int_equal(import_bytes(t, model_finish(&m), &o, &out), AMPC_USAGE);
    scratch_expect(t, "no input has a dimension 'nowhere'");
}

/* PyTorch's export of x.view(x.size(0), -1): Shape, Gather, Unsqueeze, Concat, Reshape. */
static void shape_subgraphs_fold(void **state)
{
    model m = model_new(13);
    model_input(&m, "x", ONNX_float32, "N,2,3");
    model_tensor(&m, TENSOR_INTS("zero", "", 0));
    model_tensor(&m, TENSOR_INTS("axis", "1", 0));
    model_tensor(&m, TENSOR_INTS("rest", "1", -1));
    model_node(&m, "Shape", "x", "shape");
    model_node(&m, "Gather", "shape,zero", "n");
    model_node(&m, "Unsqueeze", "n,axis", "n1");
    node n = node_new("Concat", "n1,rest", "target");
    node_int(&n, "axis", 0);
    model_add(&m, &n);
    model_node(&m, "Reshape", "x,target", "y");
    model_output(&m, "y", 0, NULL);
    expect_import(*state, model_finish(&m), "forward:\n  %y = reshape @x {shape=[N,6]} ");
}

static void inputs_bound_as_constants(void **state)
{
    model m = small_model(17);
    model_input(&m, "shape", ONNX_int64, "2");
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", 0, NULL);
    onnx_constant c = {"shape", {.dtype = IR_i64, .rank = 1, .dims = {2}}, (const int64_t[]){3, -1}};
    onnx_import_options o = {.constants = &c, .n_constants = 1};
    ir_module *out;
    assert_int_equal(import_bytes(*state, model_finish(&m), &o, &out), AMPC_OK);
    expect_text(out, "reshape @x {shape=[3,2]} : f32[3,2]");
    assert_int_equal(out->graphs.items[0]->inputs.count, 1);
    ir_module_free(out);
}

static void check_if(scratch *t, int opset)
{
    model then_branch = model_new(opset), else_branch = model_new(opset);
    model_node(&then_branch, "Relu", "x", "t");
    model_output(&then_branch, "t", 0, NULL);
    model_node(&else_branch, "Frobnicate", "x", "e");
    model_output(&else_branch, "e", 0, NULL);
    model m = small_model(opset);
    model_tensor(&m, TENSOR_INTS("rank", "", 2));
    model_tensor(&m, TENSOR_INTS("two", "", 2));
    model_node(&m, "Equal", "rank,two", "condition");
    node n = node_new("If", "condition", "y");
    node_graph(&n, "then_branch", &then_branch);
    node_graph(&n, "else_branch", &else_branch);
    model_add(&m, &n);
    model_output(&m, "y", 0, NULL);
    expect_import(t, model_finish(&m), "= relu @x : f32[2,3]");
}

static void if_with_known_condition(void **state)
{
    for (int opset = 11; opset <= 23; opset += 4) check_if(*state, opset);
}

static void losses(void **state)
{
    static const struct {
        int opset;
        const char *op, *expect;
    } rows[] = {
        {12, "SoftmaxCrossEntropyLoss", "softmax_cross_entropy @x, @label, @weight {ignore_index=-1"},
        {13, "SoftmaxCrossEntropyLoss", "reduction=\"sum\"} : f32[]"},
        {12, "NegativeLogLikelihoodLoss", "nll_loss @x, @label, @weight {ignore_index=-1"},
        {22, "NegativeLogLikelihoodLoss", "reduction=\"sum\"} : f32[]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(rows[i].opset);
        model_input(&m, "x", ONNX_float32, "N,3");
        model_input(&m, "label", ONNX_int64, "N");
        model_tensor(&m, TENSOR_FLOATS("weight", "3", 1, 2, 3));
        node n = node_new(rows[i].op, "x,label,weight", "y");
        node_text(&n, "reduction", "sum");
        node_int(&n, "ignore_index", -1);
        model_add(&m, &n);
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m), rows[i].expect);
    }
}

/* Convolution and forms shared by opsets that only added types. */
static void convolutions(void **state)
{
    static const struct {
        int opset;
        const char *attribute, *value, *expect;
    } rows[] = {
        {7, "pads", "1,1", "pads=[1,1], dilations=[1]} : f32[N,1,9]"},
        {11, "strides", "2", "strides=[2], pads=[0,0]"},
        {22, "dilations", "2", "dilations=[2]} : f32[N,1,5]"},
        {22, "kernel_shape", "3", ": f32[N,1,7]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(rows[i].opset);
        model_input(&m, "x", ONNX_float32, "N,1,9");
        model_tensor(&m, TENSOR_FLOATS("w", "1,1,3", 1, 2, 3));
        node n = node_new("Conv", "x,w", "y");
        node_ints(&n, rows[i].attribute, rows[i].value);
        model_add(&m, &n);
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m), rows[i].expect);
    }
}

static void uneven_split(void **state)
{
    model m = model_new(18);
    model_input(&m, "x", ONNX_float32, "7,2");
    node n = node_new("Split", "x", "a,b,c");
    node_int(&n, "num_outputs", 3);
    model_add(&m, &n);
    model_output(&m, "c", 0, NULL);
    expect_import(*state, model_finish(&m), "split @x {sizes=[3,3,1]} : f32[3,2], f32[3,2], f32[1,2]");
}

/* Draws a constant mask; rejected with an operand known only at run time. */
/* With duplicate indices the last one wins. With constant operands the result is a constant. */
static void scatter_with_known_indices(void **state)
{
    for (int known = 0; known < 2; known++) {
        model m = model_new(18);
        model_input(&m, "x", ONNX_float32, "3");
        model_tensor(&m, TENSOR_INTS("at", "3,1", 2, 0, -3));
        node n = node_new("Constant", "", "updates");
        node_tensor(&n, "value", TENSOR_FLOATS("", "3", 5, 6, 7));
        model_add(&m, &n);
        n = node_new("Constant", "", "data");
        node_tensor(&n, "value", TENSOR_FLOATS("", "3", 1, 2, 3));
        model_add(&m, &n);
        model_node(&m, "ScatterND", known ? "data,at,updates" : "x,at,updates", "z");
        model_node(&m, "Add", "x,z", "y");
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m),
                      known ? "const @z : f32[3] = [7, 2, 5]" : "const @z.rows : i64[3] = [5, 1, 3]");
    }
    model m = model_new(18);
    model_input(&m, "at", ONNX_int64, "1,1");
    model_tensor(&m, TENSOR_FLOATS("data", "3", 1, 2, 3));
    model_tensor(&m, TENSOR_FLOATS("updates", "1", 4));
    model_node(&m, "ScatterND", "data,at,updates", "y");
    model_output(&m, "y", 0, NULL);
    expect_refusal(*state, model_finish(&m), AMPC_UNSUPPORTED, "computed at run time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(operator_forms),
        SCRATCH_TEST(refused_forms),
        SCRATCH_TEST(names_are_single_assignment),
        SCRATCH_TEST(order_of_nodes),
        SCRATCH_TEST(unsupported_operators_are_listed_at_once),
        SCRATCH_TEST(versions),
        SCRATCH_TEST(declared_types),
        SCRATCH_TEST(parameters_and_constants),
        SCRATCH_TEST(weights_stay_in_their_file),
        SCRATCH_TEST(running_statistics_are_states),
        SCRATCH_TEST(outputs_may_be_inputs_or_initializers),
        SCRATCH_TEST(symbols_and_bindings),
        SCRATCH_TEST(shape_subgraphs_fold),
        SCRATCH_TEST(inputs_bound_as_constants),
        SCRATCH_TEST(if_with_known_condition),
        SCRATCH_TEST(losses),
        SCRATCH_TEST(convolutions),
        SCRATCH_TEST(uneven_split),
        SCRATCH_TEST(scatter_with_known_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
