/* test_fold.c - constant propagation: one row per op and case, then commit.
 *
 * Operands and results: "i64[2]=1,N", "f32[]=0.5"; `_` absent. "?" as result: does not fold. */
#include "ir_rows.h"

#include <math.h>
#include <stdio.h>

typedef struct row {
    const char *op, *operands, *attributes, *expected;
} row;

/* ---- rows ------------------------------------------------------------------------------------ */

static void read_values(const char *text, ir_const_value *constant)
{
    int64_t *ints = arena_array(module->arena, 64, sizeof *ints);
    double *floats = arena_array(module->arena, 64, sizeof *floats);
    bool real = ir_dtype_is_float(constant->type.dtype);
    while (*text) {
        assert_true(constant->count < 64);
        if (real) floats[constant->count++] = strtod(text, (char **)&text);
        else ints[constant->count++] = ir_dim_parse(module->dims, text, &text);
        if (*text == ',') text++;
    }
    if (real) constant->floats = floats;
    else constant->ints = ints;
}

/* Adds a graph input with a known value. */
static ir_value *read_constant(ir_graph *g, ir_const_map *k, const char *word)
{
    if (!strcmp(word, "_")) return NULL;
    size_t n = strcspn(word, "=");
    ir_const_value constant = {.type = read_type(arena_strndup(module->arena, word, n))};
    ir_value *v = ir_graph_input(g, "x", &constant.type);
    if (!word[n]) return v;
    read_values(word + n + 1, &constant);
    ir_const_set(k, v, &constant);
    return v;
}

static const char *show_constant(const ir_const_value *constant)
{
    arena *a = module->arena;
    const char *text = arena_printf(a, "%s=", ir_type_print(module, &constant->type, a));
    for (int64_t i = 0; i < constant->count; i++) {
        text = arena_printf(a, "%s%s", text, i ? "," : "");
        if (constant->floats) text = arena_printf(a, "%s%.9g", text, constant->floats[i]);
        else text = arena_printf(a, "%s%s", text, ir_dim_print(module->dims, constant->ints[i], a));
    }
    return text;
}

static const char *fold_row(const row *r)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    ir_value *in[16];
    ir_op op;
    int n_in = 0, n_out = 0;
    char *word;
    assert_true(ir_op_find(r->op, &op));
    for (const char *text = r->operands; (word = next_word(&text)); n_in++) in[n_in] = read_constant(g, k, word);
    for (const char *text = r->expected; ir_op_get(op)->variadic_out >= 0 && next_word(&text);) n_out++;
    ir_node *n = ir_new_array(&b, op, n_in, in, n_out);
    for (const char *text = r->attributes; (word = next_word(&text));) read_attribute(n, word);
    if (!ir_done_all(&b, n)) return diag_first_error(messages);
    if (!ir_fold(k, n, 1000)) return "?";
    const char *text = "";
    for (int i = 0; i < n->n_out; i++)
        text = arena_printf(module->arena, "%s%s%s", text, i ? " " : "", show_constant(ir_const_get(k, n->out[i])));
    return text;
}

static void run_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        const char *got = fold_row(r);
        if (strcmp(got, r->expected))
            fail_msg("%s %s {%s}: expected %s, got %s", r->op, r->operands, r->attributes, r->expected, got);
    }
}

#define RUN(...) \
    do { \
        static const row rows[] = {__VA_ARGS__}; \
        run_rows(rows, sizeof rows / sizeof *rows); \
    } while (0)

/* ---- movement -------------------------------------------------------------------------------- */

#define SIX "i64[2,3]=1,2,3,4,5,N"

static void test_movement(void **state)
{
    (void)state;
    RUN({"reshape", SIX, "shape=[3,2]", "i64[3,2]=1,2,3,4,5,N"}, {"reshape", "f32[]=2.5", "shape=[1]", "f32[1]=2.5"},
        {"transpose", SIX, "perm=[1,0]", "i64[3,2]=1,4,2,5,3,N"},
        {"transpose", "f32[1,2,3]=1,2,3,4,5,6", "perm=[2,0,1]", "f32[3,1,2]=1,4,2,5,3,6"},
        {"expand", "i64[2,1]=1,N", "shape=[2,2,2]", "i64[2,2,2]=1,1,N,N,1,1,N,N"},
        {"expand", "i64[1]=7", "shape=[0]", "i64[0]="}, {"concat", "i64[1]=N i64[2]=2,3 i64[0]=", "", "i64[3]=N,2,3"},
        {"concat", "f32[2,1]=1,2 f32[2,2]=3,4,5,6", "axis=-1", "f32[2,3]=1,3,4,2,5,6"},
        {"concat", "i64[1]=N i64[2]", "", "?"}, {"split", SIX, "axis=1 sizes=[1,2]", "i64[2,1]=1,4 i64[2,2]=2,3,5,N"},
        {"slice", "i64[5]=0,1,2,3,4", "start=[1] size=[2] step=[2]", "i64[2]=1,3"},
        {"slice", "i64[5]=0,1,2,3,4", "start=[4] size=[5] step=[-1]", "i64[5]=4,3,2,1,0"},
        {"slice", SIX, "start=[1,2] size=[1,2] step=[1,-1]", "i64[1,2]=N,5"},
        {"slice", "i64[5,2]=0,1,2,3,4,5,6,7,8,9", "start=[9223372036854775807,0] size=[0,1] step=[1,1]", "i64[0,1]="},
        {"slice_grad", "f32[2]=1,2", "shape=[5] start=[3] step=[-2]", "f32[5]=0,2,0,1,0"},
        {"gather", "i64[3]=N,8,9 i64[]=0", "", "i64[]=N"}, {"gather", "i64[3]=N,8,9 i64[2]=-1,1", "", "i64[2]=9,8"},
        {"gather", SIX " i32[1,2]=2,0", "axis=1", "i64[2,1,2]=3,1,N,4"}, {"gather", "i64[3]=N,8,9 i64[]=3", "", "?"},
        {"gather", "i64[3]=N,8,9 i64[]=-4", "", "?"}, {"gather", "i64[3]=N,8,9 i64[]=N", "", "?"},
        {"pad", "i64[2]=1,N _", "before=[1] after=[2]", "i64[5]=0,1,N,0,0"},
        {"pad", "f32[2]=1,2 f32[]=9", "before=[1] after=[-1]", "f32[2]=9,1"},
        {"pad", "i64[3]=1,2,3 _", "before=[2] after=[3] mode=reflect", "i64[8]=3,2,1,2,3,2,1,2"},
        {"pad", "i64[1]=1 _", "before=[2] after=[1] mode=reflect", "i64[4]=1,1,1,1"},
        {"pad", "i64[3]=1,2,3 _", "before=[2] after=[1] mode=edge", "i64[6]=1,1,1,2,3,3"},
        {"pad", "i64[3]=1,2,3 _", "before=[2] after=[4] mode=wrap", "i64[9]=2,3,1,2,3,1,2,3,1"},
        {"pad", "i64[2,2]=1,2,3,4 _", "before=[1,0] after=[0,1]", "i64[3,3]=0,0,0,1,2,0,3,4,0"},
        {"gather_elements", SIX " i64[2,2]=2,0,-1,1", "axis=1", "i64[2,2]=3,1,N,5"},
        {"gather_elements", SIX " i64[1,2]=1,-2", "", "i64[1,2]=4,2"}, {"gather_elements", SIX " i64[1,1]=2", "", "?"},
        {"gather_elements", SIX " i64[1,1]=N", "", "?"}, {"gather_nd", SIX " i64[2,2]=1,-1,0,1", "", "i64[2]=N,2"},
        {"gather_nd", SIX " i64[1,1]=-2", "", "i64[1,3]=1,2,3"},
        {"gather_nd", SIX " i64[2,1]=1,0", "batch=1", "i64[2]=2,4"}, {"gather_nd", SIX " i64[1,1]=2", "", "?"},
        {"scatter_elements", SIX " i64[1,2]=1,0 i64[1,2]=7,8", "", "i64[2,3]=1,8,3,7,5,N"},
        {"scatter_elements", "i8[2]=100,2 i64[2]=0,-2 i8[2]=100,1", "reduction=add", "i8[2]=-55,2"},
        {"scatter_nd", "f32[3]=1,2,3 i64[2,1]=1,1 f32[2]=5,6", "", "f32[3]=1,6,3"},
        {"scatter_nd", "f32[3]=1,2,3 i64[2,1]=1,1 f32[2]=5,6", "reduction=mul", "f32[3]=1,60,3"},
        {"scatter_nd", "i64[2]=N,3 i64[2,1]=0,1 i64[2]=1,5", "reduction=add", "i64[2]=N+1,8"},
        {"scatter_nd", "i64[2]=4,3 i64[2,1]=0,1 i64[2]=1,5", "reduction=max", "i64[2]=4,5"},
        {"scatter_nd", "i64[2]=4,3 i64[2,1]=0,1 i64[2]=1,5", "reduction=min", "i64[2]=1,3"},
        {"scatter_nd", "i64[2,2]=1,2,3,4 i64[2,1]=1,0 i64[2]=8,9", "batch=1", "i64[2,2]=1,8,9,4"},
        {"bit_cast", "f32[2]=1,-2", "to=i32", "i32[2]=1065353216,-1073741824"},
        {"bit_cast", "i16[1]=15360", "to=f16", "f16[1]=1"}, {"bit_cast", "i64[1]=N", "to=f64", "?"},
        {"trilu", "i64[2,3]=1,2,3,4,5,6", "", "i64[2,3]=1,2,3,0,5,6"},
        {"trilu", "i64[2,3]=1,2,3,4,5,6", "upper=0", "i64[2,3]=1,0,0,4,5,0"},
        {"trilu", "i64[2,3]=1,2,3,4,5,6", "k=1", "i64[2,3]=0,2,3,0,0,6"},
        {"where", "bool[2]=1,0 i64[]=N i64[2]=3,4", "", "i64[2]=N,4"},
        {"where", "bool[2,1]=1,0 f32[2]=1,2 f32[1]=5", "", "f32[2,2]=1,2,5,5"},
        {"select", "bool[]=0 i64[2]=1,2 i64[2]=3,N", "", "i64[2]=3,N"}, {"iota", "", "size=[4]", "i64[4]=0,1,2,3"},
        {"iota", "", "size=[N]", "?"}, {"iota", "", "size=[2000]", "?"},
        {"dims", "", "value=[N,2*T,-1]", "i64[3]=N,2*T,-1"}, );
}

/* ---- integers -------------------------------------------------------------------------------- */

static void test_integers(void **state)
{
    (void)state;
    RUN({"add", "i64[2]=1,2 i64[]=3", "", "i64[2]=4,5"}, {"add", "i8[]=127 i8[]=1", "", "i8[]=-128"},
        {"add", "i32[]=2147483647 i32[]=1", "", "i32[]=-2147483648"}, {"sub", "u8[]=0 u8[]=1", "", "u8[]=255"},
        {"mul", "i64[]=4611686018427387904 i64[]=2", "", "i64[]=-9223372032559808512"},
        {"mul", "i16[]=300 i16[]=300", "", "i16[]=24464"},
        {"div", "i64[4]=7,-7,7,-7 i64[4]=2,2,-2,0", "", "i64[4]=3,-3,-3,0"},
        {"div", "i8[]=-128 i8[]=-1", "", "i8[]=-128"},
        {"mod", "i64[5]=7,-7,7,-7,5 i64[5]=3,3,-3,-3,0", "", "i64[5]=1,2,-2,-1,0"},
        {"mod", "i64[5]=7,-7,7,-7,5 i64[5]=3,3,-3,-3,0", "fmod=1", "i64[5]=1,-1,1,-1,0"},
        {"pow", "i64[6]=2,-3,0,2,1,-1 i64[6]=10,3,0,-1,-5,-3", "", "i64[6]=1024,-27,1,0,1,-1"},
        {"pow", "i32[]=2 i32[]=33", "", "i32[]=0"}, {"min", "i64[2]=1,-2 i64[2]=0,5", "", "i64[2]=0,-2"},
        {"max", "i64[2]=1,-2 i64[2]=0,5", "", "i64[2]=1,5"}, {"neg", "i8[2]=-128,5", "", "i8[2]=-128,-5"},
        {"abs", "i8[2]=-128,-5", "", "i8[2]=-128,5"}, {"sign", "i64[3]=-7,0,9", "", "i64[3]=-1,0,1"},
        {"bit_not", "u8[2]=0,5", "", "u8[2]=255,250"}, {"bit_and", "i8[2]=-1,6 i8[]=3", "", "i8[2]=3,2"},
        {"bit_or", "i16[2]=4,-2 i16[]=3", "", "i16[2]=7,-1"}, {"bit_xor", "u32[2]=5,3 u32[]=1", "", "u32[2]=4,2"},
        {"shift", "u8[4]=1,255,3,1 u8[4]=7,1,8,200", "", "u8[4]=128,254,0,0"},
        {"shift", "u16[3]=65535,4,4 u16[3]=15,1,64", "right=1", "u16[3]=1,2,0"},
        {"prelu", "i32[3]=-4,0,4 i32[]=3", "", "i32[3]=-12,0,4"},
        /* u64 is written as the i64 with the same bits */
        {"div", "u64[2]=-2,7 u64[2]=2,0", "", "u64[2]=9223372036854775807,0"},
        {"mod", "u64[]=-1 u64[]=10", "", "u64[]=5"}, {"less", "u64[2]=-1,1 u64[2]=1,-1", "", "bool[2]=0,1"},
        {"max", "u64[]=-1 u64[]=1", "", "u64[]=-1"}, {"clip", "u64[2]=-1,3 u64[]=5", "", "u64[2]=-1,5"},
        {"shift", "u64[]=-1 u64[]=63", "right=1", "u64[]=1"}, {"sign", "u64[2]=-1,0", "", "u64[2]=1,0"},
        {"pow", "u64[]=3 u64[]=-1", "", "u64[]=-6148914691236517205"},
        {"add", "u64[]=9223372036854775807 u64[]=1", "", "?"}, /* no dimension has these bits */
        {"relu", "i64[2]=-7,9", "", "i64[2]=0,9"}, {"clip", "i64[3]=-7,3,9 i64[]=0 i64[]=5", "", "i64[3]=0,3,5"},
        {"clip", "i64[2]=-7,9 _ i64[]=5", "", "i64[2]=-7,5"}, {"less", "i64[3]=1,2,3 i64[]=2", "", "bool[3]=1,0,0"},
        {"less_or_equal", "i64[3]=1,2,3 i64[]=2", "", "bool[3]=1,1,0"},
        {"greater", "i64[3]=1,2,3 i64[]=2", "", "bool[3]=0,0,1"},
        {"greater_or_equal", "i64[3]=1,2,3 i64[]=2", "", "bool[3]=0,1,1"},
        {"equal", "bool[2]=1,0 bool[2]=1,1", "", "bool[2]=1,0"},
        {"and", "bool[4]=0,0,1,1 bool[4]=0,1,0,1", "", "bool[4]=0,0,0,1"},
        {"or", "bool[4]=0,0,1,1 bool[4]=0,1,0,1", "", "bool[4]=0,1,1,1"},
        {"xor", "bool[4]=0,0,1,1 bool[4]=0,1,0,1", "", "bool[4]=0,1,1,0"}, {"not", "bool[2]=0,1", "", "bool[2]=1,0"},
        {"reduce_sum", "i64[2,2]=1,2,3,4", "axes=[0]", "i64[1,2]=4,6"},
        {"reduce_sum", "i8[2]=100,100", "axes=[0] keepdims=0", "i8[]=-56"},
        {"reduce_sum", "i64[0]=", "axes=[0] keepdims=0", "i64[]=0"},
        {"reduce_mean", "i64[2]=-3,-4", "axes=[-1] keepdims=0", "i64[]=-3"},
        {"reduce_mean", "i64[0]=", "axes=[0] keepdims=0", "i64[]=0"},
        {"reduce_sum", "i64[2]=1,2", "axes=[]", "i64[2]=1,2"},
        {"reduce_mean", "u64[2]=-2,0", "axes=[0] keepdims=0", "u64[]=9223372036854775807"},
        {"reduce_max", "u64[2]=-1,1", "axes=[0] keepdims=0", "u64[]=-1"},
        {"reduce_min", "u64[2]=-1,1", "axes=[0] keepdims=0", "u64[]=1"},
        {"reduce_min", "u64[0]=", "axes=[0] keepdims=0", "u64[]=-1"},
        {"reduce_l1", "u64[2]=-2,1", "axes=[0] keepdims=0", "u64[]=-1"}, );
}

static void test_symbols(void **state)
{
    (void)state;
    RUN({"add", "i64[2]=N,T i64[]=1", "", "i64[2]=N+1,T+1"}, {"sub", "i64[]=N i64[]=N", "", "i64[]=0"},
        {"mul", "i64[2]=N,2 i64[]=T", "", "i64[2]=N*T,2*T"}, {"neg", "i64[]=N", "", "i64[]=-N"},
        {"div", "i64[]=4*N i64[]=2", "", "i64[]=2*N"}, {"div", "i64[]=N+1 i64[]=2", "", "i64[]=floor((N+1)/2)"},
        {"div", "i64[]=4*N i64[]=-2", "", "i64[]=-2*N"},
        {"div", "i64[]=N-1 i64[]=2", "", "?"}, /* rounding toward zero differs from floor for N = 0 */
        {"div", "i64[]=N i64[]=-2", "", "?"}, {"div", "i64[]=N i64[]=-1", "", "i64[]=-N"},
        {"div", "i64[]=N i64[]=0", "", "i64[]=0"}, {"div", "i64[]=N i64[]=N", "", "?"}, /* 0 for N = 0 */
        {"mod", "i64[]=2*N+3 i64[]=2", "", "i64[]=1"}, {"mod", "i64[]=N i64[]=2", "", "i64[]=N-2*floor(N/2)"},
        {"mod", "i64[]=N i64[]=2", "fmod=1", "i64[]=N-2*floor(N/2)"}, {"mod", "i64[]=N-1 i64[]=2", "fmod=1", "?"},
        {"mod", "i64[]=N i64[]=-2", "", "?"}, {"pow", "i64[]=N i64[]=2", "", "?"},
        {"min", "i64[2]=N,N+3 i64[2]=-1,N", "", "i64[2]=-1,N"}, {"max", "i64[2]=N,N+3 i64[2]=-1,N", "", "i64[2]=N,N+3"},
        {"min", "i64[]=N i64[]=1", "", "i64[]=N-max(0,N-1)"}, {"max", "i64[]=N i64[]=T", "", "i64[]=T+max(0,N-T)"},
        {"abs", "i64[]=N", "", "i64[]=N"}, {"abs", "i64[]=N-1", "", "i64[]=-N+2*max(0,N-1)+1"},
        {"sign", "i64[]=N+1", "", "i64[]=1"}, {"sign", "i64[]=N", "", "?"}, {"relu", "i64[]=N", "", "i64[]=N"},
        {"clip", "i64[]=N i64[]=0 _", "", "i64[]=N"}, {"equal", "i64[3]=N,N,N+2 i64[3]=N,-1,1", "", "bool[3]=1,0,0"},
        {"equal", "i64[]=N i64[]=1", "", "?"}, {"equal", "i64[]=N i64[]=T", "", "?"},
        {"less", "i64[2]=N,N i64[2]=0,N+1", "", "bool[2]=0,1"}, {"less", "i64[]=N i64[]=5", "", "?"},
        {"greater", "i64[]=N+1 i64[]=0", "", "bool[]=1"}, {"greater_or_equal", "i64[]=N i64[]=0", "", "bool[]=1"},
        {"less_or_equal", "i64[]=0 i64[]=N", "", "bool[]=1"},
        {"reduce_sum", "i64[3]=N,T,2", "axes=[0] keepdims=0", "i64[]=N+T+2"},
        {"reduce_mean", "i64[2]=N,N", "axes=[0] keepdims=0", "i64[]=N"},
        {"cast", "i64[2]=N,-3", "to=i32", "i32[2]=N,-3"}, {"cast", "i64[]=N", "to=i8", "?"},
        {"cast", "i64[]=N", "to=f32", "?"}, {"cast", "i64[]=N+1", "to=bool", "bool[]=1"},
        {"cast", "i64[]=N", "to=bool", "?"}, {"add", "i8[]=N i8[]=1", "", "?"}, );
}

/* ---- floats ---------------------------------------------------------------------------------- */

static void test_floats(void **state)
{
    (void)state;
    RUN({"add", "f32[]=16777216 f32[]=1", "", "f32[]=16777216"},
        {"add", "f64[]=16777216 f64[]=1", "", "f64[]=16777217"}, {"add", "f16[]=2048 f16[]=1", "", "f16[]=2048"},
        {"add", "f16[]=2048 f16[]=3", "", "f16[]=2052"}, {"mul", "f16[]=300 f16[]=300", "", "f16[]=inf"},
        {"mul", "bf16[]=1.0078125 bf16[]=1.0078125", "", "bf16[]=1.015625"},
        {"div", "f32[2]=1,-1 f32[]=0", "", "f32[2]=inf,-inf"}, {"div", "f32[]=1 f32[]=3", "", "f32[]=0.333333343"},
        {"pow", "f32[2]=2,-8 f32[2]=0.5,3", "", "f32[2]=1.41421354,-512"},
        {"mod", "f32[2]=5.5,-5.5 f32[]=2", "", "f32[2]=1.5,0.5"},
        {"mod", "f32[2]=5.5,-5.5 f32[]=2", "fmod=1", "f32[2]=1.5,-1.5"},
        {"min", "f32[3]=nan,1,2 f32[3]=1,nan,3", "", "f32[3]=nan,nan,2"},
        {"max", "f32[3]=nan,1,2 f32[3]=1,nan,3", "", "f32[3]=nan,nan,3"},
        {"relu", "f32[3]=-1,nan,2", "", "f32[3]=0,nan,2"},
        {"clip", "f32[3]=-1,nan,9 f32[]=0 f32[]=6", "", "f32[3]=0,nan,6"}, {"neg", "f32[]=0", "", "f32[]=-0"},
        {"abs", "f32[]=-1.5", "", "f32[]=1.5"}, {"sign", "f32[3]=-2,0,nan", "", "f32[3]=-1,0,nan"},
        {"floor", "f32[2]=1.5,-1.5", "", "f32[2]=1,-2"}, {"ceil", "f32[2]=1.5,-1.5", "", "f32[2]=2,-1"},
        {"round", "f32[4]=0.5,1.5,2.5,-0.5", "", "f32[4]=0,2,2,-0"}, {"sqrt", "f32[]=2", "", "f32[]=1.41421354"},
        {"reciprocal", "f16[]=3", "", "f16[]=0.333251953"}, {"exp", "f32[2]=1,-200", "", "f32[2]=2.71828175,0"},
        {"log", "f32[]=10", "", "f32[]=2.30258512"}, {"sin", "f32[]=1", "", "f32[]=0.841470957"},
        {"cos", "f32[]=1", "", "f32[]=0.540302277"}, {"tanh", "f32[]=0.5", "", "f32[]=0.462117165"},
        {"sigmoid", "f32[3]=0,-200,200", "", "f32[3]=0.5,0,1"}, {"erf", "f32[]=0.5", "", "f32[]=0.520499885"},
        {"softplus", "f32[2]=0,100", "", "f32[2]=0.693147182,100"},
        {"gelu", "f32[2]=1,-1", "", "f32[2]=0.841344774,-0.158655256"},
        {"gelu", "f32[]=1", "tanh=1", "f32[]=0.841192007"}, {"div_count", "f32[]=7", "count=[2,2]", "f32[]=1.75"},
        {"div_count", "f32[]=7", "count=[N]", "?"}, {"equal", "f32[2]=1,nan f32[2]=1,nan", "", "bool[2]=1,0"},
        {"less", "f32[2]=1,nan f32[]=2", "", "bool[2]=1,0"},
        {"greater_or_equal", "f32[2]=2,nan f32[]=2", "", "bool[2]=1,0"},
        {"reduce_sum", "f32[3]=16777216,1,1", "axes=[0] keepdims=0", "f32[]=16777216"},
        {"reduce_sum", "f16[3]=60000,60000,-60000", "axes=[0] keepdims=0", "f16[]=60000"},
        {"reduce_sum", "f16[2]=60000,60000", "axes=[0] keepdims=0 out=f32", "f32[]=120000"},
        {"reduce_mean", "f32[2,2]=1,2,3,4", "axes=[1]", "f32[2,1]=1.5,3.5"},
        {"cast", "f32[5]=1.9,-1.9,300,-300,nan", "to=i8", "i8[5]=1,-1,127,-128,0"},
        {"cast", "f32[3]=0,0.5,nan", "to=bool", "bool[3]=0,1,1"}, {"cast", "f64[]=65520", "to=f16", "f16[]=inf"},
        {"cast", "i64[]=16777217", "to=f32", "f32[]=16777216"}, {"cast", "i64[]=300", "to=u8", "u8[]=44"},
        {"cast", "u64[]=-1", "to=f64", "f64[]=1.84467441e+19"}, {"cast", "f32[2]=-3,70000", "to=u16", "u16[2]=0,65535"},
        {"cast", "u64[]=-1", "to=u32", "u32[]=4294967295"}, {"cast", "i8[]=-1", "to=u64", "u64[]=-1"},
        {"cast", "bool[2]=1,0", "to=f32", "f32[2]=1,0"}, {"exp", "f32[2]", "", "?"},
        {"softmax", "f32[2]=1,2", "", "?"}, );
}

/* ---- the constant map and commit ------------------------------------------------------------- */

static ir_node *node_of(ir_value *v) { return v->def; }

static void test_constants_are_known(void **state)
{
    (void)state;
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    ir_type type = read_type("i32[2]");
    ir_value *c = ir_constant(&b, "c", &type, (int32_t[]){5, -1});
    assert_string_equal(show_constant(ir_const_get(k, c)), "i32[2]=5,-1");
    assert_ptr_equal(ir_const_get(k, c), ir_const_get(k, c));
    assert_string_equal(show_constant(ir_const_get(k, ir_scalar(&b, IR_f16, 0.5))), "f16[]=0.5");
    ir_storage *zero = ir_storage_new(module, IR_CONST, "z", &type);
    assert_string_equal(show_constant(ir_const_get(k, ir_graph_storage(g, zero))), "i32[2]=0,0");
    ir_storage *param = ir_storage_new(module, IR_PARAM, "p", &type);
    ir_storage_set(module, param, (int32_t[]){1, 2});
    assert_null(ir_const_get(k, ir_graph_storage(g, param)));
    assert_null(ir_const_get(k, ir_graph_input(g, "x", &type)));
    ir_storage *file = ir_storage_new(module, IR_CONST, "f", &type);
    file->data.kind = IR_DATA_FILE;
    assert_null(ir_const_get(k, ir_graph_storage(g, file)));
    for (int i = 0; i < 300; i++) { /* values created after the map */
        ir_value *v = ir_scalar(&b, IR_i64, i);
        assert_int_equal(ir_const_get(k, v)->ints[0], i);
    }
}

static void test_limit(void **state)
{
    (void)state;
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    ir_value *wide = ir_expand(&b, ir_scalar(&b, IR_f32, 1), (int64_t[]){10}, 1);
    assert_false(ir_fold(k, node_of(wide), 9));
    assert_true(ir_fold(k, node_of(wide), 10));
    ir_value *sum = ir_reduce_sum(&b, wide, (int64_t[]){0}, 1, false);
    assert_false(ir_fold(k, node_of(sum), 9));
    assert_true(ir_fold(k, node_of(sum), 10));
}

static ir_value *fold_all(ir_const_map *k, ir_graph *g)
{
    ir_value *last = NULL;
    for (ir_node *n = g->first; n; n = n->next)
        if (n->n_out && ir_fold(k, n, 100)) last = n->out[0];
    return last;
}

static size_t count_nodes(const ir_graph *g)
{
    size_t count = 0;
    for (const ir_node *n = g->first; n; n = n->next) count++;
    return count;
}

/* Known numbers become constants, the nodes that computed them are removed, unknown values stay. */
static void test_commit_constant(void **state)
{
    (void)state;
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_type type = read_type("f32[N]");
    ir_value *x = ir_graph_input(g, "x", &type);
    ir_value *two = ir_binary(&b, IR_OP_add, ir_scalar(&b, IR_f32, 1), ir_scalar(&b, IR_f32, 1));
    ir_value *y = ir_binary(&b, IR_OP_mul, x, ir_unary(&b, IR_OP_neg, two));
    ir_value_rename(node_of(y)->in[1].value, "factor");
    ir_output(&b, "y", y);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    fold_all(k, g);
    ir_fold_commit(k, g, messages);
    assert_int_equal(count_nodes(g), 2);
    const ir_value *factor = ir_in(node_of(y), 1);
    assert_int_equal(factor->kind, IR_VALUE_STORAGE);
    assert_string_equal(factor->storage->name, "factor");
    assert_int_equal(factor->storage->kind, IR_CONST);
    assert_true(ir_load_f64(IR_f32, factor->storage->data.bytes) == -2);
}

/* Symbolic values become a dims node with the type of the value it replaces. */
static void test_commit_symbolic(void **state)
{
    (void)state;
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_node *n = ir_new(&b, IR_OP_dims, 0);
    ir_dim size = ir_dim_symbol(module->dims, "N");
    ir_set_list(n, IR_ATTR(dims, value), &size, 1);
    ir_value *v = ir_reshape(&b, ir_cast(&b, ir_done(&b, n), IR_i32), NULL, 0);
    ir_output(&b, "n", ir_binary(&b, IR_OP_mul, v, v));
    ir_const_map *k = ir_const_map_new(module->arena, g);
    fold_all(k, g);
    ir_fold_commit(k, g, messages);
    const ir_value *got = ir_in(g->last, 0);
    assert_string_equal(ir_type_print(module, &got->type, module->arena), "i32[]");
    assert_int_equal(count_nodes(g), 4); /* dims, cast, reshape, output */
    assert_string_equal(ir_dim_print(module->dims, *g->first->attr[0].list.items, module->arena), "N*N");
    for (n = g->first; n; n = n->next) assert_int_equal(ir_infer(n, messages), AMPC_OK);
    /* a dims node with a direct use is kept unchanged */
    k = ir_const_map_new(module->arena, g);
    ir_node *dims = g->first;
    assert_true(ir_fold(k, dims, 100));
    ir_fold_commit(k, g, messages);
    assert_ptr_equal(g->first, dims);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_module, close_module)
    const struct CMUnitTest tests[] = {
        TEST(test_movement),        TEST(test_integers),        TEST(test_symbols),
        TEST(test_floats),          TEST(test_limit),           TEST(test_constants_are_known),
        TEST(test_commit_constant), TEST(test_commit_symbolic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
