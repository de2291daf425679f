/* tails.c - runs an op and then a program over its result (kernels/epilogue.h).
 *
 * Sums of a low type are f32 in the workspace, and rounded once, by the program. Compared with a program that reads
 * rounded sums this saves 4 to 9 % of the time of a convolution whose result has 0.4 million elements, because rounding
 * costs more than the memory. To limit the workspace the op is divided into parts of a few images or rows, unless that
 * would read its weights too often; if the sums would still be too many they are rounded to their type. Other sums are
 * written to the place of result 0 if they have its type. Dividing these, so that the program reads them from the
 * second-level cache, was measured and gains nothing. */
#include "kernels/cpu/program.h"
#include "kernels/epilogue.h"

#include <stdlib.h>

enum {
    MAX_IN = 4 + K_MAX_OPERANDS, /* of the op, and of the program */
    PART_BYTES = 2 << 20,
    MAX_BYTES = 8 << 20, /* of a part that cannot be divided */
    WEIGHT = 2           /* operand 1 is read for each part; all that is at most that fraction of the sums */
};

typedef struct tail {
    const k_kernel *kernel; /* of the op */
    void *op, *program;     /* states */
    k_fused fused;          /* the program, which reads the sums as its last operand */
    ir_dtype type;          /* of the sums */
    bool in_place;          /* the sums are written to result 0 */
    int64_t parts;
    size_t program_at, sums_at; /* in the workspace */
} tail;

/* ---- parts ----------------------------------------------------------------------------------- */

/* Whether row i of the result depends only on row i of operand 0. */
static bool is_divisible(const k_args *args)
{
    const k_view *x = &args->in[0], *w = &args->in[1], *y = &args->out[0];
    if (ir_op_has(args->op, IR_SPATIAL)) return true;
    const bool transposed = args->attr[IR_ATTR(matmul, trans_a)].i != 0 && x->rank == 2;
    return w->rank == 2 && x->rank == y->rank && !transposed;
}

/* The number of parts, for `bytes` bytes of sums. */
static int64_t parts_of(const k_args *args, int64_t bytes)
{
    const int64_t rows = args->out[0].dims[0], most = bytes / WEIGHT / k_max(1, (int64_t)k_bytes(&args->in[1]));
    if (bytes <= PART_BYTES || !is_divisible(args)) return 1;
    for (int64_t n = cpu_ceil_div(bytes, PART_BYTES); n <= k_min(rows, most); n++)
        if (rows % n == 0) return n;
    return 1;
}

static void divide(const k_args *args, tail *t)
{
    const int64_t bytes = k_count(&args->out[0]) * (int64_t)sizeof(float);
    t->type = args->fused->of;
    t->parts = 1;
    if (ir_dtype_is_low(t->type)) {
        t->parts = parts_of(args, bytes);
        if (bytes / t->parts <= MAX_BYTES || !cpu_computes(t->type)) t->type = IR_f32;
        else t->parts = 1;
    }
    t->in_place = t->type == args->out[0].dtype;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A call and its views. */
typedef struct call {
    k_view in[MAX_IN], out;
    k_args args;
} call;

static void *shifted(void *data, int64_t part, size_t bytes)
{
    return data ? (char *)data + (size_t)part * bytes : NULL;
}

/* The op on one part. */
static void make_op_call(const k_args *args, const tail *t, int64_t part, call *c)
{
    k_view *x = &c->in[0], *y = &c->out;
    c->args = *args;
    c->args.n_in = ir_op_get(args->op)->n_in;
    c->args.n_out = 1;
    c->args.in = c->in;
    c->args.out = y;
    c->args.fused = NULL;
    c->args.state = t->op;
    for (int i = 0; i < c->args.n_in; i++) c->in[i] = args->in[i];
    *y = args->out[0];
    y->dtype = t->type;
    if (!t->in_place) y->data = args->workspace ? (char *)args->workspace + t->sums_at : args->out[0].data;
    if (t->parts == 1) return;
    x->dims[0] /= t->parts;
    y->dims[0] /= t->parts;
    x->data = shifted(x->data, part, k_bytes(x));
    if (t->in_place) y->data = shifted(y->data, part, k_bytes(y));
}

/* The program on one part; `sums` is result 0 of the op. */
static void make_program_call(const k_args *args, const tail *t, const k_view *sums, call *c)
{
    c->args = *args;
    c->args.in = c->in;
    c->args.n_in = args->n_in + 1;
    c->args.fused = &t->fused;
    c->args.state = t->program;
    c->args.workspace = args->workspace ? (char *)args->workspace + t->program_at : NULL;
    for (int i = 0; i < args->n_in; i++) c->in[i] = args->in[i];
    c->in[args->n_in] = t->in_place ? args->out[0] : *sums;
}

/* ---- prepare and run ------------------------------------------------------------------------- */

/* Copies the program, with the sums as an operand. */
static void copy_program(const k_args *args, tail *t)
{
    k_fused *p = &t->fused;
    *p = *args->fused;
    p->operands[p->n_operands] = (k_operand){.in = args->n_in, .dense = true};
    for (int i = 0; i < p->n_code; i++)
        for (int k = 0; k < p->code[i].n_arg; k++)
            if (p->code[i].arg[k] == K_ACCUMULATOR) p->code[i].arg[k] = ~p->n_operands;
    p->n_operands++;
}

static ampc_status tails_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_kernel *op = cpu_kernel(args->op);
    call c;
    size_t bytes = 0;
    tail *t = calloc(1, sizeof *t);
    *state = t;
    if (!t) return cpu_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    t->kernel = op;
    copy_program(args, t);
    divide(args, t);
    make_op_call(args, t, 0, &c);
    ampc_status status = op->prepare ? op->prepare(&c.args, &t->op, &bytes) : AMPC_OK;
    if (status != AMPC_OK) return status;
    t->program_at = cpu_lines(bytes);
    const k_view sums = c.out;
    bytes = 0;
    make_program_call(args, t, &sums, &c);
    status = cpu_fused.prepare(&c.args, &t->program, &bytes);
    t->sums_at = t->program_at + cpu_lines(bytes);
    *workspace = t->sums_at + (t->in_place ? 0 : k_bytes(&sums));
    return status;
}

static ampc_status tails_pack_format(const k_args *args, int operand, const k_format **format)
{
    const k_kernel *op = cpu_kernel(args->op);
    tail t = {0};
    call c;
    *format = NULL;
    if (!op->pack_format || operand >= ir_op_get(args->op)->n_in) return AMPC_OK;
    divide(args, &t);
    make_op_call(args, &t, 0, &c);
    return op->pack_format(&c.args, operand, format);
}

static ampc_status tails_run(const k_args *args)
{
    const tail *t = args->state;
    const k_kernel *op = cpu_kernel(args->op);
    const int64_t count = t->fused.count / t->parts;
    ampc_status status = AMPC_OK;
    for (int64_t i = 0; i < t->parts && status == AMPC_OK; i++) {
        call c;
        make_op_call(args, t, i, &c);
        status = op->run(&c.args);
        const k_view sums = c.out;
        make_program_call(args, t, &sums, &c);
        if (status == AMPC_OK)
            cpu_program_run(&c.args, (cpu_part){i * count, (i + 1) * count, args->n_in, t->in_place ? 0 : i * count});
    }
    return status;
}

static void tails_release(void *state)
{
    tail *t = state;
    if (!t) return;
    if (t->kernel->release) t->kernel->release(t->op);
    cpu_fused.release(t->program);
    free(t);
}

/* What the op binds; the program binds nothing. */
static ampc_status tails_bind(const k_args *args, void **bound)
{
    const tail *t = args->state;
    call c;
    if (!t->kernel->bind) return AMPC_OK;
    make_op_call(args, t, 0, &c);
    return t->kernel->bind(&c.args, bound);
}

static void tails_unbind(void *state, void *bound)
{
    const tail *t = state;
    if (t->kernel->unbind) t->kernel->unbind(t->op, bound);
}

const k_kernel cpu_tails = {.prepare = tails_prepare,
                            .run = tails_run,
                            .release = tails_release,
                            .bind = tails_bind,
                            .unbind = tails_unbind,
                            .pack_format = tails_pack_format};
