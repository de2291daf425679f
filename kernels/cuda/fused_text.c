/* fused_text.c - writes the source of a fused kernel, with all sizes and attributes as literals.
 *
 *     for each tile of a thread:   load the operands of the tile   x0, x1, ...  as stored, by operand
 *                                  for each element: instructions  s0, s1, ...  as stored, by instruction
 *                                  store the results               y0, y1, ...  by result
 *
 * A tile has 8 elements, or fewer if they would not fit into registers. Folded rows are cut and summed as in reduce.cu.
 * Operands with one element per tile are loaded as one element, contiguous ones as tiles. For all others the offset of
 * each element is computed, dividing by literals. Instructions that no result depends on are omitted. */
#include "kernels/cuda/fused_text.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fused.h"
#include "kernels/pointwise.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Register limit for the values of a tile; larger fused kernels use smaller tiles. */
enum { MAX_HELD = 64 };
/* Instructions that are unrolled over the elements of a tile; longer fused kernels use a loop. */
enum { MAX_UNROLLED = 24 };

/* How an operand is loaded: not at all, one element in total, one per tile, adjacent elements, scattered elements. */
typedef enum load_form { UNREAD, ONCE, SAME, RUN, EACH } load_form;

typedef struct writer {
    FILE *file;
    const k_fused *fused;
    const fused_types *types;
    const cuda_row_cut *cut;
    int tile;
    bool queue;  /* loop over elements, rotating the tile (see turn() in fused.cuh) */
    bool narrow; /* positions fit into 32 bits */
    bool live[K_MAX_CODE];
    load_form form[K_MAX_OPERANDS];
} writer;

static const char *const stored_types[IR_DTYPE_COUNT] = {
    [IR_f32] = "float", [IR_f16] = "__half",         [IR_bf16] = "__nv_bfloat16", [IR_i64] = "long long",
    [IR_i32] = "int",   [IR_i16] = "short",          [IR_i8] = "signed char",     [IR_u8] = "unsigned char",
    [IR_bool] = "flag", [IR_u16] = "unsigned short", [IR_u32] = "unsigned",       [IR_u64] = "unsigned long long"};

static void print(const writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(const writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(w->file, format, list);
    va_end(list);
}

/* ---- properties of instructions ---- */

static bool is_operand(int arg) { return arg < 0 && arg != K_ACCUMULATOR; }
static bool is_draw(const k_instruction *c) { return k_kind_of(c) == K_DRAW; }
static bool is_rng(const k_instruction *c, int i) { return is_draw(c) && i == 0; }

static ir_dtype operand_type(const writer *w, int i) { return w->types->in[i]; }

static ir_dtype arg_type(const writer *w, int arg)
{
    return is_operand(arg) ? operand_type(w, ~arg) : w->fused->code[arg].type;
}

static const ir_formula_info *formula_of(const k_instruction *c)
{
    return ir_formula_get(ir_formula_of(c->op, c->attr));
}

/* ---- liveness and load forms ---- */

static load_form form_of(const writer *w, const k_operand *o)
{
    const k_walk *k = &o->walk;
    const int inner = k->rank - 1;
    bool once = true;
    if (o->dense) return RUN;
    for (int i = 0; i < k->rank; i++) once &= k->src[i] == 0 || k->dims[i] == 1;
    if (once) return ONCE;
    if (k->dims[inner] % w->tile != 0 || k->dst[inner] != 1) return EACH;
    return k->src[inner] == 0 ? SAME : k->src[inner] == 1 ? RUN : EACH;
}

/* Whether a full tile of the operand starts at a chunk boundary if the operand itself is aligned. */
static bool in_chunks(const writer *w, const k_operand *o)
{
    for (int i = 0; !o->dense && i < o->walk.rank - 1; i++)
        if (o->walk.src[i] % w->tile != 0) return false;
    return true;
}

static void find_live(writer *w)
{
    const k_fused *p = w->fused;
    for (int i = 0; i < p->n_results; i++) w->live[p->results[i].from] = true;
    for (int k = p->n_code - 1; k >= 0; k--)
        for (int i = 0; w->live[k] && i < p->code[k].n_arg; i++) {
            const int arg = p->code[k].arg[i];
            if (arg == K_NO_ARG) continue;
            if (!is_operand(arg)) w->live[arg] = true;
            else if (is_rng(&p->code[k], i)) w->form[~arg] = ONCE; /* its two numbers are read separately */
            else if (w->form[~arg] == UNREAD) w->form[~arg] = form_of(w, &p->operands[~arg]);
        }
}

static int registers_of(ir_dtype t) { return ir_dtype_size(t) > 4 ? 2 : 1; }

/* Registers per element for all values held between its loads and its stores. */
static int position_registers(const writer *w)
{
    const k_fused *p = w->fused;
    int registers = 0;
    for (int i = 0; i < p->n_operands; i++)
        if (w->form[i] >= RUN) registers += registers_of(operand_type(w, i));
    for (int i = 0; i < p->n_code; i++) registers += w->live[i] && is_draw(&p->code[i]);
    for (int i = 0; i < p->n_results; i++) registers += registers_of(p->code[p->results[i].from].type);
    return registers;
}

static void choose(writer *w)
{
    const k_fused *p = w->fused;
    int live = 0;
    w->tile = CUDA_TILE;
    find_live(w);
    const int held = position_registers(w);
    while (w->tile > 1 && held * w->tile > MAX_HELD) w->tile /= 2;
    memset(w->form, 0, sizeof w->form);
    find_live(w);
    for (int i = 0; i < p->n_code; i++) {
        live += w->live[i];
        w->queue |= w->live[i] && formula_of(&p->code[i])->is_long;
    }
    w->queue |= live > MAX_UNROLLED;
    w->narrow = p->count < INT32_MAX;
}

/* ---- numbers ---- */

static void print_float(const writer *w, double v)
{
    const float f = (float)v;
    if (isfinite(f)) print(w, "%af", (double)f);
    else print(w, "__int_as_float(0x%08x)", (unsigned)ir_bits_f32(f));
}

/* Writes the offset of the operand's element for `position`. */
static void print_offset(const writer *w, const k_walk *k, const char *position)
{
    const char *suffix = w->narrow ? "u" : "ull", *plus = "";
    for (int i = 0; i < k->rank; i++) {
        if (k->src[i] == 0 || k->dims[i] == 1) continue;
        print(w, "%s(long long)(%s", plus, position);
        if (k->dst[i] != 1) print(w, " / %" PRId64 "%s", k->dst[i], suffix);
        if (i > 0) print(w, " %% %" PRId64 "%s", k->dims[i], suffix);
        print(w, ")");
        if (k->src[i] != 1) print(w, " * %" PRId64, k->src[i]);
        plus = " + ";
    }
}

/* ---- loads ---- */

static void print_pointers(const writer *w)
{
    const k_fused *p = w->fused;
    for (int i = 0; i < p->n_operands; i++)
        if (w->form[i]) {
            const char *type = stored_types[operand_type(w, i)];
            print(w, "    const %s *p%d = static_cast<const %s *>(a.operand[%d]);\n", type, i, type, i);
        }
    for (int i = 0; i < p->n_results; i++) {
        const bool parts = p->results[i].fold && w->cut->groups > 1;
        const char *type = stored_types[parts ? IR_f32 : w->types->out[i]];
        print(w, "    %s *q%d = static_cast<%s *>(a.result[%d]);\n", type, i, type, i);
    }
    print(w, "    [[maybe_unused]] const bool chunks = aligned(");
    const char *comma = "";
    for (int i = 0; i < p->n_operands; i++)
        if (w->form[i] == RUN) print(w, "%sp%d", comma, i), comma = ", ";
    for (int i = 0; i < p->n_results; i++)
        if (!p->results[i].fold) print(w, "%sq%d", comma, i), comma = ", ";
    print(w, ");\n");
}

static bool is_element(const writer *w, int operand)
{
    const k_fused *p = w->fused;
    for (int k = 0; k < p->n_code; k++)
        for (int i = 0; w->live[k] && i < p->code[k].n_arg; i++)
            if (p->code[k].arg[i] == ~operand && !is_rng(&p->code[k], i)) return true;
    return false;
}

/* Loads that happen once per thread. */
static void print_once(const writer *w)
{
    const k_fused *p = w->fused;
    for (int i = 0; i < p->n_operands; i++)
        if (w->form[i] == ONCE && is_element(w, i))
            print(w, "    const %s x%d = *p%d;\n", stored_types[operand_type(w, i)], i, i);
    for (int i = 0; i < p->n_code; i++) {
        const k_instruction *c = &p->code[i];
        if (!w->live[i] || !is_draw(c)) continue;
        const int rng = ~c->arg[0];
        print(w, "    const dropout_source d%d = dropout_source_of(value(p%d[0]), value(p%d[1]), %" PRIu64 "ull);\n", i,
              rng, rng, (uint64_t)c->attr[IR_ATTR(dropout, stream)].i + 1);
    }
}

static void print_load(const writer *w, int i)
{
    const k_operand *o = &w->fused->operands[i];
    const char *position = w->narrow ? "unsigned" : "unsigned long long", *type = stored_types[operand_type(w, i)];
    const char *constant = w->queue ? "" : "const ";
    if (w->form[i] == SAME) {
        print(w, "        const %s x%d = p%d[", type, i, i);
        print_offset(w, &o->walk, "at");
        print(w, "];\n");
    } else if (w->form[i] == EACH) {
        print(w, "        %selements<%s, %d> x%d = load_each<%d>(p%d, n, [=](int i) -> long long {\n", constant, type,
              w->tile, i, w->tile, i);
        print(w, "            const %s e = at + i;\n            return ", position);
        print_offset(w, &o->walk, "e");
        print(w, ";\n        });\n");
    } else if (w->form[i] == RUN) {
        print(w, "        %selements<%s, %d> x%d = load_run<%d>(p%d + ", constant, type, w->tile, i, w->tile, i);
        if (o->dense) print(w, "first");
        else print(w, "("), print_offset(w, &o->walk, "at"), print(w, ")");
        print(w, ", n, %s);\n", in_chunks(w, o) ? "full" : "false");
    }
}

static void print_loads(const writer *w)
{
    const k_fused *p = w->fused;
    bool at = false;
    for (int i = 0; i < p->n_operands; i++) at |= w->form[i] >= SAME && !p->operands[i].dense;
    if (at)
        print(w, "        const %s at = (%s)first;\n", w->narrow ? "unsigned" : "unsigned long long",
              w->narrow ? "unsigned" : "unsigned long long");
    for (int i = 0; i < p->n_operands; i++) print_load(w, i);
    for (int i = 0; i < p->n_code; i++)
        if (w->live[i] && is_draw(&p->code[i]))
            print(w, "        %selements<flag, %d> m%d = draw<%d>(d%d, %" PRIu64 "ull, first);\n",
                  w->queue ? "" : "const ", w->tile, i, w->tile, i,
                  (uint64_t)(p->code[i].attr[IR_ATTR(dropout, ratio)].f * 0x1p32));
}

/* ---- instructions ---- */

/* Writes an argument of an instruction in its stored type. */
static void print_stored(const writer *w, int arg)
{
    const char *element = w->queue ? "[0]" : "[i]";
    if (!is_operand(arg)) print(w, is_draw(&w->fused->code[arg]) ? "m%d.v%s" : "s%d", arg, element);
    else if (w->form[~arg] == ONCE || w->form[~arg] == SAME) print(w, "x%d", ~arg);
    else print(w, "x%d.v%s", ~arg, element);
}

static void print_value(const writer *w, int arg)
{
    print(w, "value(");
    print_stored(w, arg);
    print(w, ")");
}

/* Writes a bound of clip; an absent bound becomes the extreme value. */
static void print_bound(const writer *w, const k_instruction *c, int i, ir_dtype t, bool low)
{
    if (i < c->n_arg && c->arg[i] != K_NO_ARG) print_value(w, c->arg[i]);
    else if (ir_dtype_is_float(t)) print_float(w, low ? -INFINITY : INFINITY);
    else if (t == IR_u64) print(w, low ? "0" : "0xffffffffffffffffull");
    else print(w, low ? "-0x7fffffffffffffffll - 1" : "0x7fffffffffffffffll");
}

/* Writes the constants of a formula; 0 if it has none. */
static void print_numbers(const writer *w, const k_instruction *c, const ir_formula_info *formula, ir_dtype t)
{
    const ir_formula_params params = ir_formula_params_of(c->op, c->attr);
    for (int i = 0; i < 2; i++) {
        print(w, ", ");
        if (formula->numbers == IR_NUMBERS_BOUNDS) print_bound(w, c, formula->operands + i, t, i == 0);
        else if (formula->numbers == IR_NUMBERS_COUNT && i == 0) print_float(w, k_pointwise_count(c->attr));
        else if (formula->numbers == IR_NUMBERS_PARAMS) print_float(w, i ? params.q : params.p);
        else print(w, "0");
    }
}

static void print_formula(const writer *w, const k_instruction *c)
{
    const ir_formula_info *formula = formula_of(c);
    const ir_dtype t = arg_type(w, c->arg[0]);
    print(w, "f_%s_%s(", formula->name, ir_dtype_is_float(t) ? "float" : t == IR_u64 ? "uint64_t" : "int64_t");
    print_value(w, c->arg[0]);
    print(w, ", ");
    if (formula->operands > 1) print_value(w, c->arg[1]);
    else print(w, "0");
    print_numbers(w, c, formula, t);
    print(w, ")");
}

/* Whether a type other than u64 has no negative numbers. */
static bool is_positive(ir_dtype t) { return t == IR_u8 || t == IR_u16 || t == IR_u32; }

static void print_to_integer(const writer *w, const k_instruction *c)
{
    const int bits = (int)ir_dtype_size(c->type) * 8, sign = is_positive(c->type) ? 0 : 1;
    const int64_t max = INT64_MAX >> (63 - bits + sign);
    print(w, c->type == IR_u64 ? "float_to_unsigned(" : "float_to_integer(");
    print_value(w, c->arg[0]);
    if (c->type != IR_u64) print(w, ", -%" PRId64 "ll%s, %" PRId64 "ll", sign ? max : 0, sign ? " - 1" : "", max);
    print(w, ")");
}

static void print_cast(const writer *w, const k_instruction *c)
{
    const ir_dtype from = arg_type(w, c->arg[0]);
    const bool from_float = ir_dtype_is_float(from), to_float = ir_dtype_is_float(c->type);
    if (from_float == to_float) {
        print_value(w, c->arg[0]);
    } else if (to_float) {
        print(w, from == IR_u64 ? "unsigned_to_float(" : "integer_to_float(");
        print_value(w, c->arg[0]);
        print(w, ", %s)", ir_dtype_is_low(c->type) ? "true" : "false");
    } else if (c->type == IR_bool) {
        print_value(w, c->arg[0]);
        print(w, " != 0");
    } else {
        print_to_integer(w, c);
    }
}

static void print_choice(const writer *w, const k_instruction *c)
{
    print_value(w, c->arg[0]);
    print(w, " ? ");
    print_stored(w, c->arg[1]);
    print(w, " : ");
    print_stored(w, c->arg[2]);
}

static void print_masked(const writer *w, const k_instruction *c)
{
    print(w, "dropped(");
    print_value(w, c->arg[IR_IN(dropout_grad, dy)]);
    print(w, ", ");
    print_value(w, c->arg[IR_IN(dropout_grad, mask)]);
    print(w, ", ");
    print_float(w, 1 / (1 - c->attr[IR_ATTR(dropout_grad, ratio)].f));
    print(w, ")");
}

/* Writes the expression of an instruction. `stored`: it already has the stored type. Dropout masks are drawn together
 * with the loads. */
static const struct {
    void (*print)(const writer *w, const k_instruction *c);
    bool stored;
} kinds[K_KIND_COUNT] = {
    [K_COMPUTE] = {print_formula, false}, [K_CAST] = {print_cast, false},   [K_WHERE] = {print_choice, true},
    [K_SELECT] = {print_choice, true},    [K_MASK] = {print_masked, false},
};

static void print_instruction(const writer *w, int k)
{
    const k_instruction *c = &w->fused->code[k];
    const k_instruction_kind kind = k_kind_of(c);
    const char *type = stored_types[c->type];
    if (!w->live[k] || !kinds[kind].print) return;
    print(w, "            const %s s%d = ", type, k);
    if (!kinds[kind].stored) print(w, "as<%s>(", type);
    kinds[kind].print(w, c);
    print(w, kinds[kind].stored ? ";\n" : ");\n");
}

/* ---- tiles ---- */

static void print_result(const writer *w, int r)
{
    print(w, w->queue ? "            put(y%d, " : "            y%d.v[i] = ", r);
    print_stored(w, w->fused->results[r].from);
    print(w, w->queue ? ");\n" : ";\n");
}

/* Writes the loop over the elements of a tile. */
static void print_elements(const writer *w)
{
    const k_fused *p = w->fused;
    for (int r = 0; r < p->n_results; r++)
        print(w, "        elements<%s, %d> y%d;\n", stored_types[p->code[p->results[r].from].type], w->tile, r);
    print(w, "#pragma unroll%s\n        for (int i = 0; i < %d; i++) {\n", w->queue ? " 1" : "", w->tile);
    for (int k = 0; k < p->n_code; k++) print_instruction(w, k);
    for (int r = 0; r < p->n_results; r++) print_result(w, r);
    for (int i = 0; w->queue && i < p->n_operands; i++)
        if (w->form[i] >= RUN) print(w, "            turn(x%d);\n", i);
    for (int k = 0; w->queue && k < p->n_code; k++)
        if (w->live[k] && is_draw(&p->code[k])) print(w, "            turn(m%d);\n", k);
    print(w, "        }\n");
}

/* Writes the code for n elements starting at `first`. */
static void print_tile(const writer *w)
{
    const k_fused *p = w->fused;
    print_loads(w);
    print_elements(w);
    for (int r = 0; r < p->n_results; r++)
        if (!p->results[r].fold) print(w, "        store_run(q%d + first, n, full, y%d);\n", r, r);
}

static void print_each(const writer *w)
{
    const int64_t count = w->fused->count;
    print(w, "    for (long long first = grid_first() * %d; first < %" PRId64 "; first += grid_step() * %d) {\n",
          w->tile, count, w->tile);
    if (count % w->tile == 0)
        print(w, "        const int n = %d;\n        [[maybe_unused]] const bool full = chunks;\n", w->tile);
    else
        print(w,
              "        const int n = %" PRId64 " - first < %d ? (int)(%" PRId64 " - first) : %d;\n"
              "        [[maybe_unused]] const bool full = chunks && n == %d;\n",
              count, w->tile, count, w->tile, w->tile);
    print_tile(w);
    print(w, "    }\n");
}

/* ---- rows ---- */

/* Writes the text once for each folded result, replacing # by its number. */
static void print_folds(const writer *w, const char *format)
{
    for (int r = 0; r < w->fused->n_results; r++) {
        if (!w->fused->results[r].fold) continue;
        for (const char *c = format; *c; c++)
            if (*c == '#') print(w, "%d", r);
            else print(w, "%c", *c);
    }
}

/* Writes the code that adds tile t of a row to the row's sums. */
static void print_row_tiles(const writer *w)
{
    const int64_t row = w->fused->row;
    print(w, "        const row_span span = row_span_of(row * %" PRId64 ", %" PRId64 ", t);\n", row, row);
    print(w, "        if (span.n <= 0) continue;\n");
    print_folds(w, "        float t#[TILE];\n");
    print(w, "#pragma unroll\n        for (int part = 0; part < TILE; part += %d) {\n", w->tile);
    print(w,
          "        [[maybe_unused]] const long long first = span.first + part;\n"
          "        [[maybe_unused]] const int n = min(span.n - part, %d);\n"
          "        [[maybe_unused]] const bool full = chunks && span.n == TILE;\n",
          w->tile);
    print_tile(w);
    for (int r = 0; r < w->fused->n_results; r++)
        if (w->fused->results[r].fold)
            print(w,
                  "#pragma unroll\n        for (int i = 0; i < %d; i++) t%d[part + i] = i < n ? value(y%d.v[i]) : 0;\n",
                  w->tile, r, r);
    print(w, "        }\n");
    print_folds(w, "        sum# += tile_sum<float>(t#);\n");
}

/* Writes the store of the sums of unit `unit`: a row, or a group of its tiles. */
static void print_sums(const writer *w)
{
    const k_fused *p = w->fused;
    for (int r = 0; r < p->n_results; r++) {
        if (!p->results[r].fold) continue;
        if (w->cut->groups > 1) print(w, "        q%d[unit] = sum%d;\n", r, r);
        else if (p->results[r].fold == K_ROW_SUM)
            print(w, "        q%d[unit] = as<%s>(sum%d);\n", r, stored_types[w->types->out[r]], r);
        else
            print(w, "        q%d[unit] = as<%s>(mean_of(sum%d, %" PRId64 "));\n", r, stored_types[w->types->out[r]], r,
                  p->row);
    }
}

static int64_t row_tile_count(int64_t row) { return (row + CUDA_TILE - 1) / CUDA_TILE + (row % CUDA_TILE != 0); }

static void print_rows_by_lanes(const writer *w)
{
    const int lanes = w->cut->lanes, each = FUSED_BLOCK / lanes;
    const int64_t rows = fused_rows(w->fused);
    print(w,
          "    for (long long base = (long long)blockIdx.x * %d; base < %" PRId64
          "; base += (long long)gridDim.x * %d) {\n",
          each, rows, each);
    print(w, "    const long long row = base + threadIdx.x / %d, unit = row;\n", lanes);
    print_folds(w, "    float sum# = 0;\n");
    print(w, "    for (long long t = threadIdx.x %% %d; row < %" PRId64 " && t < %" PRId64 "; t += %d) {\n", lanes,
          rows, row_tile_count(w->fused->row), lanes);
    print_row_tiles(w);
    print(w, "    }\n");
    for (int r = 0; r < w->fused->n_results; r++)
        if (w->fused->results[r].fold) print(w, "    sum%d = lanes_sum(sum%d, %d);\n", r, r, lanes);
    print(w, "    if (row < %" PRId64 " && threadIdx.x %% %d == 0) {\n", rows, lanes);
    print_sums(w);
    print(w, "    }\n    }\n");
}

static void print_rows_by_block(const writer *w)
{
    const int64_t groups = w->cut->groups, tiles = row_tile_count(w->fused->row);
    print(w, "    __shared__ float slots[WARP];\n");
    print(w, "    const long long unit = blockIdx.x, row = unit / %" PRId64 ", group = unit %% %" PRId64 ";\n", groups,
          groups);
    print_folds(w, "    float sum# = 0;\n");
    print(w,
          "    for (long long t = %" PRId64 " * group / %" PRId64 " + threadIdx.x; t < %" PRId64
          " * (group + 1) / %" PRId64 "; t += %d) {\n",
          tiles, groups, tiles, groups, FUSED_BLOCK);
    print_row_tiles(w);
    print(w, "    }\n");
    print_folds(w, "    sum# = block_sum(sum#, slots);\n");
    print(w, "    if (threadIdx.x == 0) {\n");
    print_sums(w);
    print(w, "    }\n");
}

char *fused_text(const k_fused *fused, const fused_types *types, const cuda_row_cut *cut, int *tile)
{
    char *text = NULL;
    size_t size = 0;
    writer w = {.file = open_memstream(&text, &size), .fused = fused, .types = types, .cut = cut};
    if (!w.file) return NULL;
    choose(&w);
    *tile = w.tile;
    print(&w, "(fused_arguments a)\n{\n");
    if (fused->commits) print(&w, "    if (!fault_none(a.fault)) return;\n");
    print_pointers(&w);
    print_once(&w);
    if (fused_rows(fused) == 0) print_each(&w);
    else if (cut->by_block) print_rows_by_block(&w);
    else print_rows_by_lanes(&w);
    print(&w, "}\n");
    bool failed = ferror(w.file) != 0;
    if (fclose(w.file) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
