/* random.c - launches of `random`. */
#include "kernels/cuda/random.h"
#include "kernels/cuda/cuda.h"

static ampc_status random_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_random, "random_numbers", state);
}

static ampc_status random_run(const k_args *args)
{
    const k_view *y = &args->out[0], *rng = &args->in[IR_IN(random, rng)];
    const cuda_one *state = args->state;
    random_draw a = {.rng = rng->data,
                     .y = y->data,
                     .count = k_count(y),
                     .dtype = (int)y->dtype,
                     .rng_dtype = (int)rng->dtype,
                     .stream = (unsigned long long)args->attr[IR_ATTR(random, stream)].i + 1,
                     .normal = args->attr[IR_ATTR(random, normal)].i != 0,
                     .offset = (float)args->attr[IR_ATTR(random, offset)].f,
                     .scale = (float)args->attr[IR_ATTR(random, scale)].f};
    return cuda_launch(args, state->kernel, cuda_grid(args, a.count, RANDOM_BLOCK * CUDA_TILE), RANDOM_BLOCK, 0,
                       (void *[]){&a});
}

const k_kernel cuda_random = {.prepare = random_prepare, .run = random_run, .release = cuda_release};
