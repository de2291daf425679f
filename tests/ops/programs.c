/* programs.c - random fused kernels and their op-by-op results (see programs.h). */
#include "tests/ops/programs.h"

#include "ir/base/philox.h"
#include "kernels/pointwise.h"
#include "tests/test.h"

#include <math.h>

enum { MAX_INSTRUCTIONS = 24 };
#define COUNT_OF(array) ((int64_t)(sizeof(array) / sizeof *(array)))

/* ---- random draws ---------------------------------------------------------------------------- */

static int64_t below(ops_program *p, int64_t bound)
{
    return (int64_t)philox_below(philox_bits(p->seed, 11, p->drawn++), (uint64_t)bound);
}

static bool one_in(ops_program *p, int n) { return below(p, n) == 0; }

static double draw_float(ops_program *p, bool single)
{
    static const double special[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-30, 65504, 6e-8, 3e38};
    static const double singles[] = {2, 2, 2, 0.5, 3, -1};
    if (single && !one_in(p, 3)) return singles[below(p, COUNT_OF(singles))];
    if (one_in(p, 12)) return special[below(p, COUNT_OF(special))];
    return (double)below(p, 1 << 20) * 0x1p-17 - 4;
}

static void fill(ops_program *p, const k_view *v)
{
    for (int64_t i = 0, n = k_count(v); i < n; i++) {
        void *at = (char *)v->data + (size_t)i * ir_dtype_size(v->dtype);
        if (ir_dtype_is_float(v->dtype)) ir_store_f64(v->dtype, at, draw_float(p, n == 1));
        else if (v->dtype == IR_bool) ir_store_i64(v->dtype, at, below(p, 2));
        else ir_store_i64(v->dtype, at, one_in(p, 12) ? INT64_MIN >> below(p, 64) : below(p, 19) - 9);
    }
}

static ir_dtype draw_type(ops_program *p, ir_group group)
{
    static const ir_dtype floats[] = {IR_f32, IR_f32, IR_f16, IR_bf16, IR_f64};
    static const ir_dtype whole[] = {IR_i64, IR_i32, IR_i16, IR_i8, IR_u64, IR_u32, IR_u16, IR_u8, IR_bool};
    for (;;) {
        bool is_float = group == IR_GROUP_F || (group != IR_GROUP_B && group != IR_GROUP_W && !one_in(p, 4));
        ir_dtype t = group == IR_GROUP_B ? IR_bool
                     : is_float          ? floats[below(p, COUNT_OF(floats))]
                                         : whole[below(p, COUNT_OF(whole))];
        if (ops_takes(t) && !((group == IR_GROUP_N || group == IR_GROUP_W) && t == IR_bool)) return t;
    }
}

/* ---- shapes and operands --------------------------------------------------------------------- */

static k_view view_of(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    size_t bytes = k_bytes(&v);
    assert_int_equal(posix_memalign(&v.data, 64, bytes ? bytes : 1), 0);
    memset(v.data, 0x5a, bytes);
    return v;
}

static k_view shaped(const ops_program *p, ir_dtype t) { return view_of(t, p->shape.rank, p->shape.dims); }

static void make_shape(ops_program *p, int64_t most)
{
    static const int64_t inner[] = {1, 2, 3, 8, 31, 32, 33, 64, 127, 128, 129, 255, 511, 512, 513, 1025, 2048, 5000};
    static const int64_t longest[] = {32768, 40000, 70001};
    static const int64_t outer[] = {1, 1, 2, 3, 5, 7, 16, 33};
    static const int64_t sides[] = {2, 3, 14, 16, 57}; /* of images, whose vectors repeat in many tiles */
    k_view *s = &p->shape;
    int64_t count = 1;
    s->rank = (int)below(p, 6);
    const bool large = most > longest[0], image = large && one_in(p, 2);
    for (int i = s->rank - 1; i >= 0; i--) {
        int64_t d = i < s->rank - 1 && image ? sides[below(p, COUNT_OF(sides))]
                    : i < s->rank - 1        ? outer[below(p, COUNT_OF(outer))]
                    : large && !image        ? longest[below(p, COUNT_OF(longest))]
                                             : inner[below(p, COUNT_OF(inner))];
        s->dims[i] = count * d <= most ? d : 1;
        count *= s->dims[i];
    }
    if (s->rank > 0 && one_in(p, 100)) s->dims[0] = count = 0;
    p->fused.count = count;
    if (s->rank == 0 || count == 0 || !one_in(p, 2)) return;
    p->fused.row = 1;
    for (int i = (int)below(p, s->rank); i < s->rank; i++) p->fused.row *= s->dims[i];
}

/* Returns a view that broadcasts to the shape. */
static k_view broadcast(ops_program *p, ir_dtype t)
{
    int64_t dims[IR_MAX_RANK];
    int missing = (int)below(p, p->shape.rank + 1), rank = p->shape.rank - missing;
    for (int i = 0; i < rank; i++) dims[i] = one_in(p, 2) ? 1 : p->shape.dims[missing + i];
    return view_of(t, rank, dims);
}

/* Returns a view with the dimensions of the shape in another order. */
static k_view transposed(ops_program *p, ir_dtype t, k_walk *walk)
{
    int64_t perm[IR_MAX_RANK], dims[IR_MAX_RANK];
    for (int i = 0; i < p->shape.rank; i++) {
        int at = (int)below(p, i + 1);
        perm[i] = perm[at];
        perm[at] = i;
    }
    for (int i = 0; i < p->shape.rank; i++) dims[perm[i]] = p->shape.dims[i];
    k_view v = view_of(t, p->shape.rank, dims);
    ir_attr order = {.list = {perm, p->shape.rank}};
    *walk = k_walk_transpose(&v, &p->shape, &order);
    return v;
}

static int add_operand(ops_program *p, k_operand operand, bool value)
{
    int i = p->fused.n_operands++;
    p->fused.operands[i] = operand;
    p->value[i] = value;
    return ~i;
}

/* Adds another operand that reads an existing tensor in memory order. K_NO_ARG: no tensor fits. */
static int again(ops_program *p, ir_dtype t)
{
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].dtype == t && k_count(&p->in[i]) == p->fused.count)
            return add_operand(p, (k_operand){.in = i, .dense = true}, true);
    return K_NO_ARG;
}

/* Adds an operand. K_NO_ARG: the limit is reached. */
static int new_operand(ops_program *p, ir_dtype t, bool single)
{
    if (p->fused.n_operands == K_MAX_OPERANDS) return K_NO_ARG;
    if (!single && one_in(p, 8)) {
        int arg = again(p, t);
        if (arg != K_NO_ARG) return arg;
    }
    int64_t kind = single ? 1 : below(p, 6);
    k_operand o = {.in = p->n_in};
    k_view *v = &p->in[p->n_in++];
    static const int64_t ones[IR_MAX_RANK] = {1, 1, 1, 1, 1, 1};
    if (kind == 0) *v = transposed(p, t, &o.walk);
    else
        *v = kind == 1   ? view_of(t, (int)below(p, p->shape.rank + 1), ones)
             : kind == 2 ? broadcast(p, t)
                         : shaped(p, t);
    if (kind > 0) {
        o.walk = k_walk_broadcast(v, &p->shape);
        o.dense = k_count(v) == p->fused.count;
    }
    fill(p, v);
    return add_operand(p, o, true);
}

static int new_rng(ops_program *p)
{
    if (p->fused.n_operands == K_MAX_OPERANDS) return K_NO_ARG;
    k_view *v = &p->in[p->n_in];
    *v = view_of(IR_i64, 1, (int64_t[]){2});
    for (int i = 0; i < 2; i++) ((int64_t *)v->data)[i] = below(p, 1000);
    return add_operand(p, (k_operand){.in = p->n_in++, .walk = {1, {1}, {1}, {1}}}, false);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Picks a random operand or instruction of type t. K_NO_ARG: none. */
static int known(ops_program *p, ir_dtype t, bool operands)
{
    int found = K_NO_ARG, n = 0;
    for (int i = 0; !operands && i < p->fused.n_code; i++)
        if (p->fused.code[i].type == t && one_in(p, ++n)) found = i;
    for (int i = 0; operands && i < p->fused.n_operands; i++)
        if (p->value[i] && p->in[p->fused.operands[i].in].dtype == t && one_in(p, ++n)) found = ~i;
    return found;
}

static int draw_arg(ops_program *p, ir_dtype t)
{
    int arg = one_in(p, 4) ? K_NO_ARG : known(p, t, false);
    if (arg == K_NO_ARG && one_in(p, 2)) arg = known(p, t, true);
    if (arg == K_NO_ARG) arg = new_operand(p, t, false);
    if (arg == K_NO_ARG) arg = known(p, t, true);
    return arg == K_NO_ARG ? known(p, t, false) : arg;
}

/* Clip bounds and the condition of select have one element. */
static bool is_single(ir_op op, int slot)
{
    return ir_op_get(op)->in[slot].kind == IR_SLOT_OPT || (op == IR_OP_select && slot == IR_IN(select, cond));
}

static bool draw_slot(ops_program *p, k_instruction *c, int slot, ir_dtype t)
{
    const bool optional = ir_op_get(c->op)->in[slot].kind == IR_SLOT_OPT;
    int arg = K_NO_ARG;
    if (optional && ir_formula_get(ir_formula_of(c->op, c->attr))->numbers != IR_NUMBERS_BOUNDS) arg = K_NO_ARG;
    else if (c->op == IR_OP_dropout) arg = new_rng(p);
    else if (is_single(c->op, slot) || (c->op == IR_OP_pow && slot == 1 && (p->fused.count == 1 || one_in(p, 2))))
        arg = optional && one_in(p, 2) ? K_NO_ARG : new_operand(p, t, true);
    else arg = draw_arg(p, t);
    c->arg[c->n_arg++] = arg;
    return optional || arg != K_NO_ARG;
}

/* A function that has this derivative. */
static int64_t draw_function(ops_program *p, ir_op op)
{
    int count = 0;
    while (ir_words_function[count]) count++;
    for (;;) {
        const ir_attr of[IR_DERIVATIVE_ATTRS] = {[IR_ATTR(slope, of)] = {{below(p, count)}}};
        if (ir_formula_of(op, of)) return of[IR_ATTR(slope, of)].i;
    }
}

static void draw_attrs(ops_program *p, const k_instruction *c, ir_attr *attr, int64_t *count)
{
    static const double ratios[] = {0, 0.1, 0.5, 0.75};
    const ir_op_info *op = ir_op_get(c->op);
    assert_true(op->n_attr <= OPS_PROGRAM_ATTRS);
    *count = 1 + below(p, 1000);
    for (int i = 0; i < op->n_attr; i++) switch (op->attr[i].kind) {
        case IR_SLOT_BOOL: attr[i].i = below(p, 2); break;
        case IR_SLOT_INT: attr[i].i = below(p, 5); break;
        case IR_SLOT_FLOAT: attr[i].f = ratios[below(p, COUNT_OF(ratios))]; break;
        case IR_SLOT_DTYPE: attr[i].dtype = draw_type(p, IR_GROUP_U); break;
        case IR_SLOT_ONE_OF: attr[i].i = draw_function(p, c->op); break;
        case IR_SLOT_DIMS: attr[i].list.items = count, attr[i].list.count = 1; break;
        default: fail_msg("%s has an attribute that no program knows", op->name);
        }
}

static bool fits(ir_dtype t, ir_group group)
{
    return group == IR_GROUP_F   ? ir_dtype_is_float(t)
           : group == IR_GROUP_N ? t != IR_bool
           : group == IR_GROUP_W ? ir_dtype_is_int(t)
           : group == IR_GROUP_B ? t == IR_bool
                                 : true;
}

static void add_instruction(ops_program *p)
{
    static const ir_op ops[] = {
#define FORMULA_OP(op) IR_OP_##op,
#include "ir/ops/formulas.def"
        IR_OP_add,   IR_OP_mul,    IR_OP_cast,    IR_OP_cast,    IR_OP_cast,         IR_OP_cast,        IR_OP_where,
        IR_OP_where, IR_OP_select, IR_OP_dropout, IR_OP_dropout, IR_OP_dropout_grad, IR_OP_dropout_grad};
    k_fused *g = &p->fused;
    int i = g->n_code;
    k_instruction c = {.op = ops[below(p, COUNT_OF(ops))], .attr = p->attr[i]};
    const ir_op_info *op = ir_op_get(c.op);
    bool mask = c.op == IR_OP_dropout; /* its operand x is not an argument here */
    ir_group group = op->in[c.op == IR_OP_where || c.op == IR_OP_select ? 1 : 0].group;
    bool follow = i > 0 && fits(g->code[i - 1].type, group) && !one_in(p, 4);
    ir_dtype shared = follow ? g->code[i - 1].type : draw_type(p, group);
    draw_attrs(p, &c, p->attr[i], &p->counts[i]);
    for (int slot = mask; slot < op->n_in; slot++) {
        if (!draw_slot(p, &c, slot, op->in[slot].group == group ? shared : IR_bool)) return;
    }
    while (c.n_arg > 1 && c.arg[c.n_arg - 1] == K_NO_ARG && one_in(p, 2)) c.n_arg--;
    ir_group out = op->out[mask].group;
    c.type = c.op == IR_OP_cast ? c.attr[IR_ATTR(cast, to)].dtype : out == group ? shared : IR_bool;
    g->code[g->n_code++] = c;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Returns an input that a result of type t may overwrite: all its readers read it in memory order. */
static int place(const ops_program *p, ir_dtype t)
{
    for (int i = 0; i < p->n_in; i++) {
        bool fit = p->in[i].dtype == t && k_count(&p->in[i]) == p->fused.count;
        for (int k = 0; k < p->fused.n_operands; k++) fit &= p->fused.operands[k].in != i || p->fused.operands[k].dense;
        for (int k = 0; k < p->fused.n_results; k++) fit &= p->over[k] != i;
        if (fit) return i;
    }
    return -1;
}

static void add_result(ops_program *p, int from)
{
    k_fused *g = &p->fused;
    const ir_dtype t = g->code[from].type;
    bool folded = g->row && ir_dtype_is_float(t) && one_in(p, 2);
    ir_dtype stored = folded && one_in(p, 2) ? draw_type(p, IR_GROUP_F) : t;
    if (stored != t && (stored == IR_f64 || t == IR_f64)) stored = t;
    int i = g->n_results;
    p->over[i] = !folded && one_in(p, 3) ? place(p, t) : -1;
    g->results[i].from = from;
    g->results[i].fold = !folded ? K_EACH : one_in(p, 2) ? K_ROW_SUM : K_ROW_MEAN;
    p->expected[i] = folded ? view_of(stored, 1, (int64_t[]){g->count / g->row}) : shaped(p, t);
    g->n_results++;
}

static void add_results(ops_program *p)
{
    const k_fused *g = &p->fused;
    bool used[K_MAX_CODE] = {false};
    for (int i = 0; i < g->n_code; i++)
        for (int k = 0; k < g->code[i].n_arg; k++)
            if (g->code[i].arg[k] >= 0 && g->code[i].arg[k] != K_NO_ARG) used[g->code[i].arg[k]] = true;
    for (int i = g->n_code - 1; i >= 0; i--)
        for (int times = !used[i] + one_in(p, 6); times > 0 && g->n_results < K_MAX_RESULTS; times--) add_result(p, i);
}

void ops_program_make(ops_program *p, uint64_t seed, int64_t most)
{
    *p = (ops_program){.seed = seed};
    make_shape(p, most);
    int64_t n = 1 + below(p, one_in(p, 2) ? 5 : MAX_INSTRUCTIONS);
    while (p->fused.n_code < n) add_instruction(p);
    add_results(p);
}

void ops_program_free(ops_program *p)
{
    for (int i = 0; i < p->n_in; i++) free(p->in[i].data);
    for (int i = 0; i < p->fused.n_results; i++) free(p->expected[i].data);
}

/* ---- expected results ------------------------------------------------------------------------ */

static void run_op(ir_op op, const ir_attr *attr, const k_view *in, int n_in, k_view *out, int n_out)
{
    char error[256] = "";
    const k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    k_args args = {.op = op, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .attr = attr, .ctx = &ctx};
    if (ops_run(&args, false, 1)) fail_msg("%s: %s", ir_op_get(op)->name, error);
}

/* Returns an operand expanded to one element per position. */
static k_view spread(const ops_program *p, const k_operand *o)
{
    const k_view *v = &p->in[o->in];
    k_view all = shaped(p, v->dtype);
    size_t size = ir_dtype_size(v->dtype);
    for (int64_t i = 0; i < p->fused.count; i++) {
        int64_t from = o->dense ? i : 0, rest = i;
        for (int d = o->walk.rank - 1; !o->dense && d >= 0; d--) {
            from += rest % o->walk.dims[d] * o->walk.src[d];
            rest /= o->walk.dims[d];
        }
        memcpy((char *)all.data + (size_t)i * size, (const char *)v->data + (size_t)from * size, size);
    }
    return all;
}

/* Returns argument k in the form that the op expects; *own: the caller must free its data. */
static k_view argument(const ops_program *p, const k_instruction *c, int k, const k_view *given, bool *own)
{
    *own = false;
    if (c->arg[k] == K_NO_ARG) return (k_view){.dtype = IR_NO_DTYPE};
    if (c->arg[k] >= 0) return given[c->arg[k]];
    const k_operand *o = &p->fused.operands[~c->arg[k]];
    bool single = is_single(c->op, k) || (c->op == IR_OP_pow && k == 1 && k_count(&p->in[o->in]) == 1);
    if (single || c->op == IR_OP_dropout) return p->in[o->in];
    *own = true;
    return spread(p, o);
}

static void expect_instruction(const ops_program *p, const k_instruction *c, k_view *given)
{
    k_view in[K_MAX_ARGS], out[2] = {{.dtype = IR_NO_DTYPE}};
    bool own[K_MAX_ARGS], mask = c->op == IR_OP_dropout;
    for (int k = 0; k < c->n_arg; k++) in[k] = argument(p, c, k, given, &own[k]);
    out[mask] = shaped(p, c->type);
    if (mask) {
        k_view x = shaped(p, IR_f32), both[] = {x, in[0]};
        out[0] = shaped(p, IR_f32);
        run_op(c->op, c->attr, both, 2, out, 2);
        free(x.data);
        free(out[0].data);
    } else {
        run_op(c->op, c->attr, in, c->n_arg, out, 1);
    }
    for (int k = 0; k < c->n_arg; k++)
        if (own[k]) free(in[k].data);
    given[c - p->fused.code] = out[mask];
}

static void expect_result(ops_program *p, int i, const k_view *given)
{
    const k_result *r = &p->fused.results[i];
    const k_view *x = &given[r->from];
    if (r->fold == K_EACH) {
        memcpy(p->expected[i].data, x->data, k_bytes(x));
        return;
    }
    const ir_op op = r->fold == K_ROW_SUM ? IR_OP_reduce_sum : IR_OP_reduce_mean;
    const int64_t last = 1;
    k_view rows = {.data = x->data, .dtype = x->dtype, .rank = 2};
    rows.dims[0] = p->fused.count / p->fused.row;
    rows.dims[1] = p->fused.row;
    ir_attr attr[] = {[IR_ATTR(reduce_sum, axes)] = {.list = {&last, 1}},
                      [IR_ATTR(reduce_sum, keepdims)] = {.i = 0},
                      [IR_ATTR(reduce_sum, out)] = {.dtype = p->expected[i].dtype}};
    run_op(op, attr, &rows, 1, &p->expected[i], 1);
}

void ops_program_expect(ops_program *p)
{
    k_view given[K_MAX_CODE];
    for (int i = 0; i < p->fused.n_code; i++) expect_instruction(p, &p->fused.code[i], given);
    for (int i = 0; i < p->fused.n_results; i++) expect_result(p, i, given);
    for (int i = 0; i < p->fused.n_code; i++) free(given[i].data);
}

/* ---- check ----------------------------------------------------------------------------------- */

static void print_view(const k_view *v)
{
    print_error(" %s[", ir_dtype_name(v->dtype));
    for (int d = 0; d < v->rank; d++) print_error("%s%lld", d ? "," : "", (long long)v->dims[d]);
    print_error("]");
}

static void print(const ops_program *p, int threads)
{
    const k_fused *g = &p->fused;
    print_error("program %llu, %d threads, rows of %lld, shape", (unsigned long long)p->seed, threads,
                (long long)g->row);
    print_view(&p->shape);
    for (int i = 0; i < g->n_operands; i++) {
        print_error("\n    operand ~%d: in %d%s", i, g->operands[i].in, g->operands[i].dense ? " dense" : "");
        print_view(&p->in[g->operands[i].in]);
    }
    for (int i = 0; i < g->n_code; i++) {
        print_error("\n    %d: %s", i, ir_op_get(g->code[i].op)->name);
        for (int k = 0; k < g->code[i].n_arg; k++) {
            int arg = g->code[i].arg[k];
            if (arg == K_NO_ARG) print_error(" none");
            else print_error(" %s%d", arg < 0 ? "~" : "", arg < 0 ? ~arg : arg);
        }
        print_error(" : %s", ir_dtype_name(g->code[i].type));
    }
    for (int i = 0; i < g->n_results; i++) {
        print_error("\n    result %d: from %d, fold %d, over %d", i, g->results[i].from, (int)g->results[i].fold,
                    p->over[i]);
        print_view(&p->expected[i]);
    }
    print_error("\n");
}

/* All NaNs are equal. */
static bool equal(const k_view *a, const k_view *b, int64_t i)
{
    size_t size = ir_dtype_size(a->dtype);
    const char *x = (const char *)a->data + (size_t)i * size, *y = (const char *)b->data + (size_t)i * size;
    if (memcmp(x, y, size) == 0) return true;
    if (!ir_dtype_is_float(a->dtype)) return false;
    double u = ir_load_f64(a->dtype, x), v = ir_load_f64(a->dtype, y);
    return isnan(u) && isnan(v);
}

static void compare(const ops_program *p, int threads, const char *what, int i, const k_view *got,
                    const k_view *expected)
{
    for (int64_t k = 0; k < k_count(expected); k++) {
        if (equal(got, expected, k)) continue;
        size_t at = (size_t)k * ir_dtype_size(expected->dtype);
        print(p, threads);
        fail_msg("program %llu: %s %d, element %lld: %.17g instead of %.17g", (unsigned long long)p->seed, what, i,
                 (long long)k, ir_load_f64(got->dtype, (const char *)got->data + at),
                 ir_load_f64(expected->dtype, (const char *)expected->data + at));
    }
}

void ops_program_check(const ops_program *p, int threads)
{
    const k_fused *g = &p->fused;
    k_view in[K_MAX_OPERANDS], out[K_MAX_RESULTS];
    bool taken[K_MAX_OPERANDS] = {false};
    char error[256] = "";
    const k_context ctx = {.threads = threads, .error = error, .error_size = sizeof error};
    if (!ops_on->fused) fail_msg("%s has no kernel for programs", ops_on->name);
    for (int i = 0; i < p->n_in; i++) {
        in[i] = view_of(p->in[i].dtype, p->in[i].rank, p->in[i].dims);
        memcpy(in[i].data, p->in[i].data, k_bytes(&in[i]));
    }
    for (int i = 0; i < g->n_results; i++) {
        out[i] = p->expected[i];
        if (p->over[i] >= 0) taken[p->over[i]] = true;
        out[i].data = p->over[i] >= 0 ? in[p->over[i]].data : view_of(out[i].dtype, out[i].rank, out[i].dims).data;
    }
    k_args args = {.in = in, .out = out, .n_in = p->n_in, .n_out = g->n_results, .fused = g, .ctx = &ctx};
    if (ops_run_kernel(ops_on->fused, &args, threads != 1, 1)) {
        print(p, threads);
        fail_msg("program %llu: %s", (unsigned long long)p->seed, error);
    }
    for (int i = 0; i < g->n_results; i++) compare(p, threads, "result", i, &out[i], &p->expected[i]);
    for (int i = 0; i < p->n_in; i++)
        if (!taken[i]) compare(p, threads, "operand", i, &in[i], &p->in[i]);
    for (int i = 0; i < g->n_results; i++)
        if (p->over[i] < 0) free(out[i].data);
    for (int i = 0; i < p->n_in; i++) free(in[i].data);
}
