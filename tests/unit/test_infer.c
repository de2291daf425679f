/* test_infer.c - result types and errors of every op, one row each: operands, attributes, results or message.
 *
 * Operands: types; `_` absent, `@f32[2]` a state, `#f32[2]` a constant. Attributes: name=value. An expectation that
 * starts with `!` is a part of the error message; otherwise it lists the result types. */
#include "ir_rows.h"

typedef struct row {
    const char *op, *operands, *attributes, *expected;
} row;

/* ---- parsing rows ---------------------------------------------------------------------------- */

static ir_value *read_operand(ir_graph *g, const char *word)
{
    if (!strcmp(word, "_")) return NULL;
    bool stored = *word == '@' || *word == '#';
    ir_type type = read_type(word + stored);
    if (!stored) return ir_graph_input(g, "x", &type);
    return ir_graph_storage(g, ir_storage_new(module, *word == '@' ? IR_STATE : IR_CONST, "s", &type));
}

/* ---- running rows ---------------------------------------------------------------------------- */

/* Returns the number of expected types if the op has a variable number of results. */
static int count_results(const row *r)
{
    int n = 0;
    ir_op op;
    assert_true(ir_op_find(r->op, &op));
    if (ir_op_get(op)->variadic_out < 0) return 0;
    for (const char *text = r->expected; *r->expected != '!' && next_word(&text);) n++;
    return n;
}

static ir_node *make_node(const row *r)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_value *in[32];
    ir_op op;
    int n = 0;
    char *word;
    assert_true(ir_op_find(r->op, &op));
    for (const char *text = r->operands; (word = next_word(&text)); n++) in[n] = read_operand(g, word);
    ir_node *node = ir_new_array(&b, op, n, in, count_results(r));
    assert_non_null(node);
    for (const char *text = r->attributes; (word = next_word(&text));) read_attribute(node, word);
    return node;
}

static const char *show_results(const ir_node *n)
{
    const char *text = "";
    for (int i = 0; i < n->n_out; i++)
        text = arena_printf(module->arena, "%s%s%s", text, i ? " " : "",
                            ir_type_print(module, &n->out[i]->type, module->arena));
    return text;
}

static void run_row(const row *r)
{
    diag_clear(messages);
    ir_node *n = make_node(r);
    ampc_status status = ir_infer(n, messages);
    if (*r->expected == '!') {
        if (status != AMPC_REJECTED || !strstr(diag_first_error(messages), r->expected + 1))
            fail_msg("%s %s {%s}: expected \"%s\", got \"%s\" %s", r->op, r->operands, r->attributes, r->expected + 1,
                     diag_first_error(messages), show_results(n));
    } else if (status != AMPC_OK || strcmp(show_results(n), r->expected)) {
        fail_msg("%s %s {%s}: expected %s, got %s %s", r->op, r->operands, r->attributes, r->expected, show_results(n),
                 diag_first_error(messages));
    }
}

static void run_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) run_row(&rows[i]);
}

#define RUN(...) \
    do { \
        static const row rows[] = {__VA_ARGS__}; \
        run_rows(rows, sizeof rows / sizeof *rows); \
    } while (0)

/* ---- generic checks -------------------------------------------------------------------------- */

static void test_slots(void **state)
{
    (void)state;
    RUN({"relu", "i32[2]", "", "i32[2]"}, {"relu", "bool[2]", "", "!x must be a number type, is bool"},
        {"exp", "i32[2]", "", "!x must be a float type, is i32"}, {"not", "f32[2]", "", "!x must be bool, is f32"},
        {"gather", "f32[2] f32[1]", "", "!indices must be an integer type, is f32"},
        {"add", "f32[2] f16[2]", "", "!element types differ: a is f32 and b is f16"},
        {"where", "bool[2] f32[2] f64[2]", "", "!element types differ: a is f32 and b is f64"},
        {"concat", "f32[2] i64[2]", "", "!element types differ: x is f32 and x is i64"},
        {"sgd", "f16[2] f16[2] f16[]", "", "!param must be f32 or f64, is f16"},
        {"sgd", "f64[2] f64[2] f64[]", "", "f64[2]"},
        {"sgd", "f32[2] f64[2] f32[]", "", "!element types differ: param is f32 and grad is f64"},
        {"batch_norm", "f64[1,2] f32[2] f32[2] f32[2] f32[2]", "", "f64[1,2] f32[2] f32[2] f64[2] f64[2]"},
        {"batch_norm", "f16[1,2] f32[2] f32[2] f32[2] f32[2]", "", "f16[1,2] f32[2] f32[2] f32[2] f32[2]"},
        {"batch_norm", "f16[1,2] f32[2] f16[2] f32[2] f32[2]", "",
         "!element types differ: scale is f32 and bias is f16"},
        {"batch_norm_grad", "f64[1,2] f64[1,2] f32[2] f32[2] f32[2]", "", "!saved_mean must be f64, is f32"},
        {"matmul", "f16[2,3] f16[3,4]", "out=f32", "f32[2,4]"},
        {"matmul", "f16[2,3] f16[3,4]", "out=i32", "!out i32 of f16: both must be float types"},
        {"reduce_sum", "i32[2]", "out=f32", "!out f32 of i32: both must be float types"},
        {"relu", "same[2]", "", "!x has no type"}, {"relu", "f32[1048576,1048576,1048576]", "", "!is too large"},
        {"relu", "f32[0,1048576,1048576,1048576]", "", "!is too large"},
        {"relu", "f32[N,1048576,4096]", "", "f32[N,1048576,4096]"}, );
}

static void test_arity(void **state)
{
    (void)state;
    row r = {"add", "f32[2] f32[2]", "", "f32[2]"};
    ir_node *n = make_node(&r);
    n->n_in = 1;
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(messages), "has 1 operands, expected 2"));
    diag_clear(messages);
    n->n_in = 2;
    ir_node_set_input(n, 1, NULL);
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(messages), "operand b is missing"));
    diag_clear(messages);
    n->n_out = 0;
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(messages), "has 0 results, expected 1"));
}

static void test_attributes(void **state)
{
    (void)state;
    RUN({"layer_norm", "f32[2,3] f32[3]", "eps=-1", "!eps is out of range: -1"},
        {"layer_norm", "f32[2,3] f32[3]", "eps=nan", "!eps must be finite"},
        {"dropout", "f32[2] i64[2]", "ratio=1", "!ratio is out of range: 1"},
        {"dropout", "f32[2] i64[2]", "stream=-1", "!stream is out of range: -1"},
        {"conv", "f32[1,1,4] f32[1,1,2]", "strides=[0] pads=[0,0] dilations=[1]", "!strides is out of range: 0"},
        {"conv", "f32[1,1,4] f32[1,1,2]", "strides=[1] pads=[0,-1] dilations=[1]", "!pads is out of range: -1"},
        {"conv", "f32[1,1,4] f32[1,1,2]", "strides=[1] pads=[0,0] dilations=[3000000000]",
         "!dilations is out of range: 3000000000"},
        {"conv", "f32[1,1,4] f32[1,1,2]", "strides=[1] pads=[0,0] dilations=[1] group=0", "!group is out of range"},
        {"reshape", "f32[2]", "shape=[-2]", "!shape is out of range: -2"},
        {"reshape", "f32[2]", "shape=[?]", "!entry 0 of shape is too large or too complex"},
        {"dims", "", "value=[-1,N]", "i64[2]"}, );
}

/* ---- families -------------------------------------------------------------------------------- */

static void test_movement(void **state)
{
    (void)state;
    RUN({"reshape", "f32[2,3]", "shape=[6]", "f32[6]"}, {"reshape", "f32[]", "shape=[1,1]", "f32[1,1]"},
        {"reshape", "f32[N,2,3]", "shape=[6*N]", "f32[6*N]"}, {"reshape", "f32[N,T,8]", "shape=[N*T,8]", "f32[N*T,8]"},
        {"reshape", "f32[0,3]", "shape=[5,0]", "f32[5,0]"},
        {"reshape", "f32[A*A*A*A*A,B*B*B*B*B,2]", "shape=[2,A*A*A*A*A,B*B*B*B*B]", "f32[2,A*A*A*A*A,B*B*B*B*B]"},
        {"reshape", "f32[2,3]", "shape=[4]", "!element counts differ: 6 of f32[2,3] and 4 of f32[4]"},
        {"reshape", "f32[N,3]", "shape=[3*N+1]", "!element counts differ: 3*N of f32[N,3] and 3*N+1 of f32[3*N+1]"},
        {"reshape", "f32[1]", "shape=[1,1,1,1,1,1,1,1,1,1,1,1,1]", "!shape has 13 dimensions, the limit is 12"},
        {"transpose", "f32[2,N,4]", "perm=[2,0,1]", "f32[4,2,N]"}, {"transpose", "f32[]", "perm=[]", "f32[]"},
        {"transpose", "f32[2,3]", "perm=[0]", "!perm needs 2 entries, has 1"},
        {"transpose", "f32[2,3]", "perm=[0,0]", "!perm is not a permutation of 0..1: entry 1 is 0"},
        {"transpose", "f32[2,3]", "perm=[0,2]", "!perm is not a permutation of 0..1: entry 1 is 2"},
        {"transpose", "f32[2,3]", "perm=[-1,0]", "!entry 0 is -1"},
        {"expand", "f32[3,1]", "shape=[2,3,N]", "f32[2,3,N]"}, {"expand", "f32[1]", "shape=[0]", "f32[0]"},
        {"expand", "f32[3]", "shape=[1]", "!cannot expand f32[3] to f32[1]"},
        {"expand", "f32[N]", "shape=[T]", "f32[T]"},
        {"expand", "f32[1,3]", "shape=[3]", "!cannot expand f32[1,3] to f32[3]"},
        {"concat", "f32[2,3] f32[2,N] f32[2,1]", "axis=1", "f32[2,N+4]"}, {"concat", "f32[2,3]", "axis=-2", "f32[2,3]"},
        {"concat", "f32[2,3] f32[3,3]", "axis=1", "!operands differ outside axis 1: f32[2,3] and f32[3,3]"},
        {"concat", "f32[2,3] f32[2]", "axis=1", "!operands differ outside axis 1: f32[2,3] and f32[2]"},
        {"concat", "f32[2,3] f32[2,3]", "axis=2", "!axis 2 is out of range for 2 dimensions"},
        {"concat", "f32[] f32[]", "", "!axis 0 is out of range for 0 dimensions"},
        {"concat", "", "", "!has no operands"},
        {"split", "f32[5,N]", "axis=0 sizes=[2,0,3]", "f32[2,N] f32[0,N] f32[3,N]"},
        {"split", "f32[5,2*N]", "axis=1 sizes=[N,N]", "f32[5,N] f32[5,N]"},
        {"split", "f32[5]", "sizes=[2,2]", "!sizes needs 1 entries, has 2"},
        {"split", "f32[5]", "sizes=[4]", "!sizes add up to 4, axis 0 has 5"},
        {"split", "f32[5]", "axis=1 sizes=[5]", "!axis 1 is out of range for 1 dimensions"}, );
}

static void test_slices(void **state)
{
    (void)state;
    RUN({"slice", "f32[5,N]", "start=[1,0] size=[2,N] step=[2,1]", "f32[2,N]"},
        {"slice", "f32[5]", "start=[4] size=[5] step=[-1]", "f32[5]"},
        {"slice", "f32[N]", "start=[1] size=[N-1] step=[1]", "f32[N-1]"},
        {"slice", "f32[N]", "start=[N-1] size=[N] step=[-1]", "f32[N]"},
        {"slice", "f32[5]", "start=[9] size=[0] step=[1]", "f32[0]"},
        {"slice", "f32[5]", "start=[1] size=[5] step=[1]", "!axis 0: index 5 is outside of 5"},
        {"slice", "f32[5]", "start=[5] size=[1] step=[1]", "!axis 0: index 5 is outside of 5"},
        {"slice", "f32[5]", "start=[3] size=[5] step=[-1]", "!axis 0: index -1 is outside of 5"},
        {"slice", "f32[N]", "start=[0] size=[N+1] step=[1]", "!axis 0: index N is outside of N"},
        {"slice", "f32[5]", "start=[0] size=[5] step=[0]", "!axis 0: step is 0"},
        {"slice", "f32[5]", "start=[0] size=[2] step=[9223372036854775807]", "!is outside of 5"},
        {"slice", "f32[5]", "start=[0] size=[3] step=[9223372036854775807]", "!index ? is outside of 5"},
        {"slice", "f32[5]", "start=[0,0] size=[5] step=[1]", "!start needs 1 entries, has 2"},
        {"slice", "f32[5]", "start=[0] size=[] step=[1]", "!size needs 1 entries, has 0"},
        {"slice_grad", "f32[2,N]", "shape=[5,N] start=[1,0] step=[2,1]", "f32[5,N]"},
        {"slice_grad", "f32[3]", "shape=[5] start=[1] step=[2]", "!axis 0: index 5 is outside of 5"},
        {"slice_grad", "f32[3]", "shape=[5,5] start=[1,0] step=[2,1]", "!dy must have at most 2 dimensions, is f32[3]"},
        {"pad", "f32[2,N] _", "before=[1,0] after=[2,3]", "f32[5,N+3]"},
        {"pad", "f32[4] f32[]", "before=[-1] after=[-1]", "f32[2]"},
        {"pad", "f32[4] f32[2]", "before=[0] after=[0]", "!value must be a scalar, is f32[2]"},
        {"pad", "f32[4] _", "before=[-5] after=[2]", "!axis 0: cannot crop 5 of 4"},
        {"pad", "f32[4] _", "before=[-3] after=[-2]", "!the size of axis 0 of the result would be -1"},
        {"pad", "f32[0] _", "before=[1] after=[0] mode=edge", "!axis 0 has no element to repeat"},
        {"pad", "f32[0] _", "before=[1] after=[0]", "f32[1]"},
        {"pad", "f32[4] _", "before=[1,1] after=[0]", "!before needs 1 entries, has 2"},
        {"pad_grad", "f32[6]", "shape=[4] before=[1] after=[1] mode=reflect", "f32[4]"},
        {"pad_grad", "f32[7]", "shape=[4] before=[1] after=[1] mode=reflect", "!dy must be f32[6], is f32[7]"},
        {"gather", "f32[5,N] i64[2,3]", "axis=0", "f32[2,3,N]"}, {"gather", "f32[5,N] i32[]", "axis=-1", "f32[5]"},
        {"gather", "f32[5] i64[1]", "axis=1", "!axis 1 is out of range for 1 dimensions"},
        {"gather", "f32[1,1,1,1,1,1,1] i64[1,1,1,1,1,1,1]", "",
         "!the result would have 13 dimensions, the limit is 12"},
        {"gather_grad", "f16[2,3,N] i64[2,3]", "shape=[5,N] out=f32", "f32[5,N]"},
        {"gather_grad", "f16[2,3] i64[2,3]", "shape=[5,N]", "!dy must be f16[2,3,N], is f16[2,3]"},
        {"bit_cast", "f32[N]", "to=i64", "!f32 cannot be reinterpreted as i64"},
        {"bit_cast", "f16[N]", "to=i16", "i16[N]"}, );
}

static void test_index(void **state)
{
    (void)state;
    RUN({"gather_elements", "f32[5,N] i64[7,N]", "", "f32[7,N]"},
        {"gather_elements", "f32[5,4] i32[5,0]", "axis=-1", "f32[5,0]"},
        {"gather_elements", "f32[5] i64[2,3]", "", "!indices must have 1 dimensions, is i64[2,3]"},
        {"gather_elements", "f32[5,4] i64[2,5]", "", "!axis 1: indices have 5 elements, x has 4"},
        {"gather_elements", "f32[] i64[]", "", "!axis 0 is out of range for 0 dimensions"},
        {"gather_nd", "f32[5,4,N] i64[3,2]", "", "f32[3,N]"}, {"gather_nd", "f32[5,4] i64[2]", "", "f32[]"},
        {"gather_nd", "f32[N,4,5] i64[N,2,1]", "batch=1", "f32[N,2,5]"},
        {"gather_nd", "f32[N,4,5] i64[M,2,1]", "batch=1", "!batch axis 0: x has N, indices have M"},
        {"gather_nd", "f32[5] i64[]", "", "!indices must have at least 1 dimensions, is i64[]"},
        {"gather_nd", "f32[5] i64[1,2]", "", "!the last dimension of indices must be 1 to 1, is 2"},
        {"gather_nd", "f32[5] i64[1,N]", "", "!the last dimension of indices must be 1 to 1, is N"},
        {"gather_nd", "f32[5] i64[1,1]", "batch=1", "!batch is 1, must be below the rank of x and indices"},
        {"scatter_elements", "f32[5] i64[2] f32[2]", "reduction=mul", "f32[5]"},
        {"scatter_elements", "f32[5] i64[2] f32[3]", "", "!updates must be f32[2], is f32[3]"},
        {"scatter_elements", "bool[5] i64[2] bool[2]", "reduction=add", "!reduction 'add' is not defined for bool"},
        {"scatter_nd", "bool[5,N] i64[2,1] bool[2,N]", "", "bool[5,N]"},
        {"scatter_nd", "f32[5,N] i64[2,1] f32[2]", "", "!updates must be f32[2,N], is f32[2]"}, );
}

static void test_pointwise(void **state)
{
    (void)state;
    RUN({"neg", "i8[2,N]", "", "i8[2,N]"}, {"clip", "f32[3] f32[] _", "", "f32[3]"},
        {"clip", "f32[3] _ f32[]", "", "f32[3]"}, {"clip", "f32[3] f32[3] _", "", "!lo must be a scalar, is f32[3]"},
        {"slope", "f32[3] f32[3]", "of=relu", "f32[3]"},
        {"slope", "f32[3] f32[1]", "of=relu", "!v must be f32[3], is f32[1]"},
        {"slope", "f32[3] f32[3] f32[] _", "of=clip", "f32[3]"},
        {"slope", "f32[3] f32[3] f32[] _", "of=relu", "!relu has no bounds"},
        {"curvature", "f32[3] f32[3]", "of=tanh", "f32[3]"},
        {"curvature", "f32[3] f32[3]", "of=relu", "!relu has no curvature"},
        {"dropout_grad", "f16[3] bool[3]", "", "f16[3]"},
        {"dropout_grad", "f16[3] bool[4]", "", "!mask must be bool[3], is bool[4]"},
        {"softmax", "f16[2,3]", "axis=1 out=f32", "f32[2,3]"},
        {"softmax", "f16[2,3]", "axis=2", "!axis 2 is out of range for 2 dimensions"},
        {"softmax_grad", "f16[2,3] f16[2,3]", "axis=-3", "!axis -3 is out of range for 2 dimensions"},
        {"trilu", "f32[2,3]", "", "f32[2,3]"}, {"trilu", "f32[3]", "", "!x must have at least 2 dimensions, is f32[3]"},
        {"div_count", "f32[3]", "count=[N,2]", "f32[3]"}, {"add", "f32[2,1,N] f32[3,1]", "", "f32[2,3,N]"},
        {"add", "i64[] i64[0]", "", "i64[0]"},
        {"add", "f32[2,3] f32[4]", "", "!shapes do not broadcast: f32[2,3] and f32[4]"},
        {"add", "f32[N+4] f32[3]", "", "!shapes do not broadcast: f32[N+4] and f32[3]"},
        {"add", "f32[N] f32[3]", "", "f32[3]"}, {"add", "f32[3] f32[N]", "", "f32[3]"},
        {"add", "f32[N] f32[N-max(0,N-64)]", "", "f32[N]"}, {"less", "f32[N] f32[1]", "", "bool[N]"},
        {"equal", "bool[2] bool[2]", "", "bool[2]"}, {"where", "bool[2,1] f32[] f32[3]", "", "f32[2,3]"},
        {"where", "bool[2] f32[] f32[3]", "", "!shapes do not broadcast: bool[2] and f32[3]"},
        {"select", "bool[] f32[3] f32[3]", "", "f32[3]"},
        {"select", "bool[3] f32[3] f32[3]", "", "!cond must be a scalar, is bool[3]"},
        {"select", "bool[] f32[3] f32[1]", "", "!b must be f32[3], is f32[1]"},
        {"cast", "f32[N]", "to=bool", "bool[N]"}, {"cast", "f32[N]", "to=nothing", "!to must name an element type"},
        {"iota", "", "size=[N]", "i64[N]"}, {"iota", "", "size=[3] type=i32", "i32[3]"},
        {"iota", "", "size=[3] type=f32", "!type must be an integer type, is f32"},
        {"iota", "", "", "!size needs 1 entries, has 0"}, {"dims", "", "value=[]", "i64[0]"}, );
}

static void test_matmul(void **state)
{
    (void)state;
    RUN({"matmul", "f32[N,784] f32[784,10] f32[10]", "", "f32[N,10]"},
        {"matmul", "f32[784,N] f32[10,784]", "trans_a=1 trans_b=1", "f32[N,10]"},
        {"matmul", "f32[B,1,2,3] f32[H,3,4]", "", "f32[B,H,2,4]"}, {"matmul", "f32[2,0] f32[0,4]", "", "f32[2,4]"},
        {"matmul", "f32[N,784] f32[785,10]", "", "!inner dimensions differ: 784 and 785"},
        {"matmul", "f32[2,3] f32[2,3]", "trans_a=1 trans_b=1", "!inner dimensions differ: 2 and 3"},
        {"matmul", "f32[N,3] f32[N,4]", "", "f32[N,4]"},
        {"matmul", "f32[N+4,3] f32[N+4,3]", "", "!inner dimensions differ: 3 and N+4"},
        {"matmul", "f32[3] f32[3,4]", "", "!a must have at least 2 dimensions, is f32[3]"},
        {"matmul", "f32[2,3] f32[3,4] f32[3]", "", "!bias must be f32[4], is f32[3]"},
        {"matmul", "f32[2,2,3] f32[5,3,4]", "", "!leading dimensions do not broadcast: f32[2,2,3] and f32[5,3,4]"}, );
}

#define PLAIN2 "strides=[1,1] pads=[0,0,0,0] dilations=[1,1]"
#define HALF2 "strides=[2,2] pads=[1,1,1,1] dilations=[1,1]"

static void test_conv(void **state)
{
    (void)state;
    RUN({"conv", "f32[N,3,28,28] f32[8,3,5,5] f32[8]", PLAIN2, "f32[N,8,24,24]"},
        {"conv", "f32[1,3,H,W] f32[8,3,3,3]", HALF2, "f32[1,8,floor((H+1)/2),floor((W+1)/2)]"},
        {"conv", "f16[1,4,9] f16[6,2,3]", "strides=[2] pads=[1,0] dilations=[2] group=2 out=f32", "f32[1,6,3]"},
        {"conv", "f32[0,1,3,3,3] f32[2,1,3,3,3]", "strides=[1,1,1] pads=[0,0,0,0,0,0] dilations=[1,1,1]",
         "f32[0,2,1,1,1]"},
        {"conv", "f32[1,3,8,8] f32[8,4,3,3]", PLAIN2, "!channels differ: 3 in the input, 4 * group 1 in the weight"},
        {"conv", "f32[1,6,8,8] f32[8,2,3,3]", PLAIN2 " group=3", "!group 3 does not divide 8 output channels"},
        {"conv", "f32[1,3,8,8] f32[8,3,9,3]", PLAIN2, "!axis 2: a window of 9 is larger than 8 padded elements"},
        {"conv", "f32[1,3,8,8] f32[8,3,0,3]", PLAIN2, "!the kernel size of axis 2 is out of range: 0"},
        {"conv", "f32[1,3,8,8] f32[8,3,3,K]", PLAIN2, "!the kernel size of axis 3 is out of range: K"},
        {"conv", "f32[1,3,8,8] f32[8,3,3,3] f32[3]", PLAIN2, "!bias must be f32[8], is f32[3]"},
        {"conv", "f32[1,3,8,8] f32[8,3,3]", PLAIN2, "!ranks differ: 4 of the input and 3 of the weight"},
        {"conv", "f32[1,3] f32[8,3]", "", "!the input has 0 spatial dimensions, 1 to 3 are supported"},
        {"conv", "f32[1,3,8,8] f32[8,3,3,3]", "", "!strides needs 2 entries, has 0"},
        {"conv", "f32[1,3,8,8] f32[8,3,3,3]", "strides=[1,1] pads=[0,0] dilations=[1,1]",
         "!pads needs 4 entries, has 2"},
        {"conv_grad_input", "f32[N,8,24,24] f32[8,3,5,5]", PLAIN2 " shape=[N,3,28,28]", "f32[N,3,28,28]"},
        {"conv_grad_input", "f32[N,8,23,24] f32[8,3,5,5]", PLAIN2 " shape=[N,3,28,28]",
         "!dy must be f32[N,8,24,24], is f32[N,8,23,24]"},
        {"conv_grad_weight", "f16[N,8,24,24] f16[N,3,28,28]", PLAIN2 " shape=[8,3,5,5] out=f32", "f32[8,3,5,5] f32[8]"},
        {"conv_grad_weight", "f32[N,9,24,24] f32[N,3,28,28]", PLAIN2 " shape=[8,3,5,5]",
         "!dy must be f32[N,8,24,24], is f32[N,9,24,24]"}, );
}

static void test_pool(void **state)
{
    (void)state;
    RUN({"max_pool", "f32[N,3,8,8]", PLAIN2 " kernel=[2,2]", "f32[N,3,7,7] i64[N,3,7,7]"},
        {"max_pool", "u8[1,1,5]", "strides=[2] pads=[0,0] dilations=[1] kernel=[2] ceil=1", "u8[1,1,3] i64[1,1,3]"},
        {"max_pool", "f32[1,1,4]", "strides=[2] pads=[0,0] dilations=[1] kernel=[2] ceil=1", "f32[1,1,2] i64[1,1,2]"},
        /* the last window would start in the trailing padding */
        {"max_pool", "f32[1,1,2]", "strides=[3] pads=[1,1] dilations=[1] kernel=[2] ceil=1", "f32[1,1,1] i64[1,1,1]"},
        {"max_pool", "f32[1,1,2]", "strides=[2] pads=[1,1] dilations=[1] kernel=[3] ceil=1", "f32[1,1,2] i64[1,1,2]"},
        {"max_pool", "f32[1,1,2*L]", "strides=[2] pads=[0,0] dilations=[1] kernel=[2] ceil=1", "f32[1,1,L] i64[1,1,L]"},
        {"max_pool", "f32[1,1,L]", "strides=[2] pads=[0,0] dilations=[1] kernel=[2] ceil=1",
         "f32[1,1,floor((L+1)/2)] i64[1,1,floor((L+1)/2)]"},
        {"max_pool", "f32[1,1,8]", "strides=[1] pads=[2,0] dilations=[1] kernel=[2]",
         "!axis 2: padding of 2 is not smaller than the window of 2"},
        {"max_pool", "f32[1,1,8]", "strides=[1] pads=[2,0] dilations=[2] kernel=[2]", "f32[1,1,8] i64[1,1,8]"},
        {"max_pool", "f32[1,1,8]", "strides=[1] pads=[0,0] dilations=[1] kernel=[0]", "!kernel is out of range: 0"},
        {"max_pool", "u64[1,1,8]", "strides=[1] pads=[0,0] dilations=[1] kernel=[2]", "!u64 is not supported"},
        {"max_pool", "f32[1,8]", "", "!the input has 0 spatial dimensions, 1 to 3 are supported"},
        {"avg_pool", "f16[1,1,8]", "strides=[1] pads=[1,1] dilations=[1] kernel=[3]", "f16[1,1,8]"},
        {"avg_pool", "f16[1,1,1]", "strides=[1] pads=[0,0] dilations=[1] kernel=[3]",
         "!axis 2: a window of 3 is larger than 1 padded elements"},
        {"max_pool_grad", "f32[N,3,7] i64[N,3,7]", "shape=[N,3,8]", "f32[N,3,8]"},
        {"max_pool_grad", "f32[N,3,7] i64[N,3,6]", "shape=[N,3,8]", "!indices must be i64[N,3,7], is i64[N,3,6]"},
        {"max_pool_grad", "f32[N,3,7] i64[N,3,7]", "shape=[N,4,8]", "!is not the pooled shape of"},
        {"avg_pool_grad", "f32[1,1,7]", "strides=[1] pads=[0,0] dilations=[1] kernel=[2] shape=[1,1,8]", "f32[1,1,8]"},
        {"avg_pool_grad", "f32[1,1,8]", "strides=[1] pads=[0,0] dilations=[1] kernel=[2] shape=[1,1,8]",
         "!dy must be f32[1,1,7], is f32[1,1,8]"}, );
}

static void test_norm(void **state)
{
    (void)state;
    RUN({"batch_norm", "f32[N,3,8] f32[3] f32[3] f32[3] f32[3]", "", "f32[N,3,8] f32[3] f32[3] f32[3] f32[3]"},
        {"batch_norm", "f32[N,3,8] f32[3] f32[4] f32[3] f32[3]", "", "!bias must be f32[3], is f32[4]"},
        {"batch_norm", "f32[3] f32[3] f32[3] f32[3] f32[3]", "", "!x must have at least 2 dimensions, is f32[3]"},
        {"batch_norm_grad", "f16[N,3] f16[N,3] f32[3] f32[3] f32[3]", "", "f16[N,3] f32[3] f32[3]"},
        {"batch_norm_grad", "f16[N,3] f16[N,3] f32[3] f32[2] f32[3]", "", "!saved_mean must be f32[3], is f32[2]"},
        {"layer_norm", "f32[N,T,8] f32[8] _", "", "f32[N,T,8] f32[N,T,1] f32[N,T,1]"},
        {"layer_norm", "f32[N,T,8] f32[T,8] f32[T,8]", "axis=1 out=f16", "f16[N,T,8] f32[N,1,1] f32[N,1,1]"},
        {"layer_norm", "f32[N,T,8] f32[T+9] _", "", "!scale must be f32[8], is f32[T+9]"},
        {"layer_norm", "f32[N,8] f32[8] _", "axis=2", "!axis 2 is out of range for 2 dimensions"},
        {"layer_norm_grad", "f16[N,8] f16[N,8] f32[8] f32[N,1] f32[N,1]", "", "f16[N,8] f32[8] f32[8]"},
        {"layer_norm_grad", "f16[N,8] f16[N,8] f32[8] f32[N,1] f32[N]", "", "!rstd must be f32[N,1], is f32[N]"}, );
}

static void test_reductions(void **state)
{
    (void)state;
    RUN({"reduce_sum", "f32[2,N,4]", "axes=[0,-1]", "f32[1,N,1]"},
        {"reduce_mean", "f16[2,N,4]", "axes=[2,0] keepdims=0 out=f32", "f32[N]"},
        {"reduce_sum", "i64[2,3]", "axes=[]", "i64[2,3]"},
        {"reduce_sum", "f32[2,3]", "axes=[0,-2]", "!axis -2 is listed twice"},
        {"reduce_sum", "f32[2,3]", "axes=[2]", "!axis 2 is out of range for 2 dimensions"},
        {"reduce_mean", "f32[]", "axes=[0]", "!axis 0 is out of range for 0 dimensions"},
        {"global_norm", "f16[2] f16[N,3]", "", "f32[]"}, {"global_norm", "f64[2]", "", "f64[]"},
        {"global_norm", "i64[2]", "", "!x must be a float type, is i64"},
        {"softmax_cross_entropy", "f16[N,10] i64[N] _", "", "f32[] f32[N] f16[N,10]"},
        {"softmax_cross_entropy", "f64[N,10,T] i32[N,T] f32[10]", "reduction=none", "f64[N,T] f64[N,T] f64[N,10,T]"},
        {"softmax_cross_entropy", "f32[N,10] i64[N,1] _", "", "!label must be i64[N], is i64[N,1]"},
        {"softmax_cross_entropy", "f32[N,10] i64[N] f32[9]", "", "!weight must be f32[10], is f32[9]"},
        {"nll_loss", "f32[N,10] i64[N] _", "reduction=sum", "f32[]"},
        {"nll_loss", "f32[10] i64[] _", "", "!x must have at least 2 dimensions, is f32[10]"},
        {"softmax_cross_entropy_grad", "f32[] f16[N,10] f32[N] i64[N] _", "", "f16[N,10]"},
        {"softmax_cross_entropy_grad", "f32[N] f16[N,10] f32[N] i64[N] _", "", "!dloss must be f32[], is f32[N]"},
        {"softmax_cross_entropy_grad", "f32[] f16[N,10] f32[N+1] i64[N] _", "", "!lse must be f32[N], is f32[N+1]"},
        {"nll_loss_grad", "f32[N] f32[N,10] i64[N] _", "reduction=none", "f32[N,10]"},
        {"nll_loss_grad", "f32[] f32[N,10] i64[N+1] _", "", "!label must be i64[N], is i64[N+1]"}, );
}

static void test_training(void **state)
{
    (void)state;
    RUN({"dropout", "f16[N,3] i64[2]", "", "f16[N,3] bool[N,3]"},
        {"dropout", "f16[N,3] i64[3]", "", "!rng must be i64[2], is i64[3]"},
        {"dropout", "f16[N,3] i32[2]", "", "!rng must be i64[2], is i32[2]"},
        {"check_finite_and_unscale", "f16[2] f16[3] f32[]", "", "f32[2] f32[3] bool[]"},
        {"check_finite_and_unscale", "f16[2] f16[3] f32[]", "", "!has 2 gradients, but 1 results for them"},
        {"check_finite_and_unscale", "f16[2] f32[2]", "", "!scale must be a scalar, is f32[2]"},
        {"update_loss_scaling", "bool[] f32[] i32[] i64[]", "", "f32[] i32[] i64[]"},
        {"update_loss_scaling", "bool[] f32[2] i32[] i64[]", "", "!scale must be a scalar, is f32[2]"},
        {"update_loss_scaling", "bool[] f32[] i32[] i64[]", "decr_ratio=2", "!decr_ratio is out of range: 2"},
        {"sgd", "f32[3] f32[3] f32[] bool[]", "", "f32[3]"},
        {"sgd", "f32[3] f32[4] f32[] bool[]", "", "!grad must be f32[3], is f32[4]"},
        {"momentum", "f32[3] f32[3] f32[3] f32[] _", "", "f32[3] f32[3]"},
        {"momentum", "f32[3] f32[2] f32[3] f32[] _", "", "!velocity must be f32[3], is f32[2]"},
        {"adamw", "f32[3] f32[3] f32[3] f32[3] i64[] f32[] bool[]", "", "f32[3] f32[3] f32[3]"},
        {"adamw", "f32[3] f32[3] f32[3] f32[3] i64[2] f32[] _", "", "!step must be a scalar, is i64[2]"},
        {"store", "@f32[3] f32[3]", "", ""}, {"store", "@f32[3] f32[2]", "", "!@s.1 is f32[3], the value is f32[2]"},
        {"store", "#f32[3] f32[3]", "", "!only a parameter or a state can be stored"},
        {"store", "f32[3] f32[3]", "", "!only a parameter or a state can be stored"},
        {"output", "f32[3]", "name=y", ""}, {"output", "f32[3]", "", "!an output needs a name"}, );
}

static void test_broadcast(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *expected;
    } rows[] = {
        {"f32[]", "f32[]", "f32[]"},
        {"f32[2,3]", "f32[3]", "f32[2,3]"},
        {"f32[1]", "f32[N]", "f32[N]"},
        {"f32[N,1]", "f32[T]", "f32[N,T]"},
        {"f32[1]", "f32[0]", "f32[0]"},
        {"f32[2]", "f32[N]", "f32[2]"},
        {"f32[0]", "f32[2]", NULL},
        {"f32[N+1]", "f32[1+N]", "f32[N+1]"},
        {"f32[N]", "f32[T]", "f32[T+max(0,N-T)]"},
        {"f32[N+3]", "f32[2]", NULL},
        {"f32[N+2]", "f32[N+4]", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_type a = read_type(rows[i].a), b = read_type(rows[i].b), got;
        assert_int_equal(ir_broadcast(module->dims, &a, &b, &got), rows[i].expected != NULL);
        if (rows[i].expected) assert_string_equal(ir_type_print(module, &got, module->arena), rows[i].expected);
    }
}

/* The error refers to the model's node, or to the op and value of a node that the compiler created. */
static void test_location(void **state)
{
    (void)state;
    row r = {"matmul", "f32[2,3] f32[4,5]", "", ""};
    ir_node *n = make_node(&r);
    n->loc = (ir_loc){.file = "model.onnx", .op = "MatMul", .node = "fc/MatMul"};
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    assert_string_equal(diag_first_error(messages),
                        "model.onnx: node 'fc/MatMul' (MatMul): error: inner dimensions differ: 3 and 4");
    diag_clear(messages);
    n->loc = (ir_loc){0};
    ir_value_rename(n->out[0], "y");
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(messages), "'y' (matmul): error: inner dimensions differ: 3 and 4"));
}

static ampc_status infer_again(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next) TRY(ir_infer(n, messages));
    return AMPC_OK;
}

static void test_graph(void **state)
{
    (void)state;
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_type type = read_type("f32[2,3]"), other = read_type("f32[N,3]");
    ir_value *x = ir_graph_input(g, "x", &type);
    ir_value *y = ir_unary(&b, IR_OP_exp, ir_unary(&b, IR_OP_relu, x));
    ir_output(&b, "y", y);
    x->type = other;
    assert_int_equal(infer_again(g), AMPC_OK);
    assert_true(ir_type_equal(&y->type, &other));
    x->type = read_type("bool[2]");
    assert_int_equal(infer_again(g), AMPC_REJECTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_module, close_module)
    const struct CMUnitTest tests[] = {
        TEST(test_slots),    TEST(test_arity),     TEST(test_attributes), TEST(test_movement),
        TEST(test_index),    TEST(test_slices),    TEST(test_pointwise),  TEST(test_matmul),
        TEST(test_conv),     TEST(test_pool),      TEST(test_norm),       TEST(test_reductions),
        TEST(test_training), TEST(test_broadcast), TEST(test_location),   TEST(test_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
