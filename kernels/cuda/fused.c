/* fused.c - launches of fused kernels; each has its own source (fused_text.c) and is compiled by generate.c.
 *
 * If rows are cut into groups, a second launch adds up their partial sums, as in reduce_sum. Its result goes to
 * workspace and is committed from there if the kernel must not write after a fault. */
#include "kernels/cuda/fused.h"
#include "kernels/cuda/generate.h"
#include "kernels/cuda/fused_text.h"

#include <stdlib.h>

_Static_assert((int)FUSED_OPERANDS == (int)K_MAX_OPERANDS && (int)FUSED_RESULTS == (int)K_MAX_RESULTS &&
                   (int)FUSED_BLOCK == (int)CUDA_BLOCK && (int)FUSED_BLOCK == (int)REDUCE_BLOCK,
               "one limit");

typedef struct state {
    const cuda_generated *generated; /* NULL: nothing to do */
    int64_t blocks;
    cuda_row_cut cut;
    cuda_reduce_kernels reduce; /* used if rows are cut into groups */
} state;

/* ---- workspace: for each folded result its partial sums, followed (if it is committed) by the result ---- */

static size_t up(size_t bytes) { return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT; }

static size_t parts_bytes(const k_fused *p, const cuda_row_cut *cut)
{
    return up((size_t)(fused_rows(p) * cut->groups) * sizeof(float));
}

static size_t fold_bytes(const k_args *args, const cuda_row_cut *cut, int r)
{
    const k_fused *p = args->fused;
    if (!p->results[r].fold || cut->groups == 1) return 0;
    return parts_bytes(p, cut) + (p->commits ? up(k_bytes(&args->out[r])) : 0);
}

/* ---- prepare ---- */

static ampc_status check_code(const k_args *args)
{
    const k_fused *p = args->fused;
    for (int k = 0; k < p->n_code; k++) {
        if (p->code[k].type == IR_f64)
            return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "float64 is not supported on CUDA");
        /* fuse_pointwise.c has replaced them all */
        for (int i = 0; i < p->code[k].n_arg; i++) assert(p->code[k].arg[i] != K_ACCUMULATOR);
    }
    for (int r = 0; r < p->n_results; r++)
        if (p->results[r].fold && !ir_dtype_is_float(p->code[p->results[r].from].type))
            return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "fused row sums require a float type");
    return AMPC_OK;
}

static ampc_status make_kernel(const k_args *args, state *s)
{
    const k_fused *p = args->fused;
    ir_dtype in[K_MAX_OPERANDS], out[K_MAX_RESULTS];
    const int64_t rows = fused_rows(p);
    int tile = 0;
    assert(args->n_out == p->n_results); /* fuse_pointwise.c creates the step and its fused kernel together */
    for (int i = 0; i < p->n_operands; i++) in[i] = args->in[p->operands[i].in].dtype;
    for (int r = 0; r < p->n_results; r++) out[r] = args->out[r].dtype;
    if (rows) s->cut = cuda_cut_rows(rows, p->row);
    if (s->cut.blocks > INT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "%lld rows are too many for this device", (long long)rows);
    char *text = fused_text(p, &(fused_types){in, out}, &s->cut, &tile);
    if (!text) return cuda_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    s->blocks = rows ? s->cut.blocks : cuda_grid(args, p->count, (int64_t)FUSED_BLOCK * tile);
    return cuda_generate(args->ctx, text, &s->generated);
}

static ampc_status fused_prepare(const k_args *args, void **out, size_t *workspace)
{
    const k_fused *p = args->fused;
    CUDA_FORWARD(check_code(args));
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    state *s = *out;
    s->cut.groups = 1;
    if (p->count == 0) return AMPC_OK;
    CUDA_FORWARD(make_kernel(args, s));
    for (int r = 0; r < p->n_results; r++) *workspace += fold_bytes(args, &s->cut, r);
    return s->cut.groups > 1 ? cuda_find_reduce(args->ctx, &s->reduce) : AMPC_OK;
}

/* ---- run ---- */

/* Adds up the partial sums of result r at `parts`. */
static ampc_status join(const k_args *args, int r, char *parts)
{
    const state *s = args->state;
    const k_fused *p = args->fused;
    const k_view *y = &args->out[r];
    void *to = p->commits ? parts + parts_bytes(p, &s->cut) : y->data;
    CUDA_FORWARD(cuda_join_rows(args, &s->reduce, parts, s->cut.groups, p->results[r].fold == K_ROW_MEAN ? p->row : 0,
                                to, y->dtype, fused_rows(p)));
    return p->commits ? cuda_commit(args->ctx, y->data, to, k_bytes(y)) : AMPC_OK;
}

static ampc_status fused_run(const k_args *args)
{
    const state *s = args->state;
    const k_fused *p = args->fused;
    fused_arguments a = {.fault = cuda_of(args->ctx)->fault};
    char *workspace = args->workspace;
    if (!s->generated) return AMPC_OK;
    for (int i = 0; i < p->n_operands; i++) a.operand[i] = args->in[p->operands[i].in].data;
    for (int r = 0; r < p->n_results; r++) {
        const size_t bytes = fold_bytes(args, &s->cut, r);
        a.result[r] = bytes ? workspace : args->out[r].data;
        workspace += bytes;
    }
    CUDA_FORWARD(cuda_launch(args, s->generated->kernel, s->blocks, FUSED_BLOCK, 0, (void *[]){&a}));
    for (int r = 0; r < p->n_results; r++)
        if (fold_bytes(args, &s->cut, r)) CUDA_FORWARD(join(args, r, a.result[r]));
    return AMPC_OK;
}

const k_kernel cuda_fused = {.prepare = fused_prepare, .run = fused_run, .release = cuda_release};
