/* test_forms.c - the results and gradients of random nodes (tests/forms) are the same on CUDA as on the processor, in f32,
 * f16 and bf16.
 *
 * usage: PROGRAM [FIRST COUNT]    seeds of each operator and type; default 0 4, below the full tier tier_first(4) 4
 *
 * A difference may have a few units in the last place of the type, relative to the largest element. Where terms cancel
 * (the gradient of RMSNormalization over one element is dy rstd (1 - h h), with h h near 1), it may have twice what the
 * result of the processor changes by if each operand changes by one unit in the last place. */
#include "tests/forms/probe.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <math.h>

static uint64_t first_seed, seeds = 4;

static const struct {
    onnx_type type;
    const char *name;
    double tolerance;
} precisions[] = {{ONNX_float32, "f32", 2e-5}, {ONNX_float16, "f16", 6e-3}, {ONNX_bfloat16, "bf16", 5e-2}};

static int64_t elements(const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static double element(const rt_tensor *t, int64_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * ir_dtype_size(t->dtype));
}

/* Returns the largest difference relative to the largest element. */
static double distance(const rt_tensor *a, const rt_tensor *b)
{
    double worst = 0, scale = 1e-3;
    if (a->dtype != b->dtype || elements(a) != elements(b)) return INFINITY;
    for (int64_t i = 0; i < elements(a); i++) {
        const double x = element(a, i), y = element(b, i);
        if (isnan(x) && isnan(y)) continue;
        if (isfinite(y)) scale = fmax(scale, fabs(y));
        if (x != y) worst = isfinite(x - y) ? fmax(worst, fabs(x - y)) : INFINITY;
    }
    return worst / scale;
}

/* ---- rounding that cancellation magnifies ---------------------------------------------------------------------- */

enum { NUDGES = 8 };

static size_t size_of(const rt_tensor *t) { return (size_t)elements(t) * ir_dtype_size(t->dtype); }

/* Moves each element that is not zero to the next or the previous number. */
static void nudge(choices *c, rt_tensor *t)
{
    const size_t size = ir_dtype_size(t->dtype);
    for (size_t at = 0; at < size_of(t); at += size) {
        uint32_t bits = 0;
        memcpy(&bits, (char *)t->data + at, size);
        if (bits << (33 - 8 * size)) bits += choose(c, 2) ? 1u : UINT32_MAX;
        memcpy((char *)t->data + at, &bits, size);
    }
}

/* Runs once with other values of all operands of the probe's type. */
static bool run_nudged(probe *p, rt_session *cpu)
{
    void *kept[FORM_INPUTS + FORM_POOL] = {0};
    for (int i = 0; i < p->n; i++) {
        if (p->in[i].dtype != onnx_type_dtype((int)p->type)) continue;
        kept[i] = malloc(size_of(&p->in[i]) + 1);
        memcpy(kept[i], p->in[i].data, size_of(&p->in[i]));
        nudge(&p->c, &p->in[i]);
    }
    const bool has_run = probe_run(p, cpu);
    for (int i = 0; i < p->n; i++) {
        if (kept[i]) memcpy(p->in[i].data, kept[i], size_of(&p->in[i]));
        free(kept[i]);
    }
    return has_run;
}

/* Returns the largest distance between output i and the same with nudged operands. */
static double sensitivity(probe *p, rt_session *cpu, int i)
{
    double worst = 0;
    rt_tensor exact = *rt_session_output_at(cpu, i);
    void *copy = malloc(size_of(&exact) + 1);
    exact.data = memcpy(copy, exact.data, size_of(&exact));
    for (int k = 0; k < NUDGES && run_nudged(p, cpu); k++)
        worst = fmax(worst, distance(rt_session_output_at(cpu, i), &exact));
    free(copy);
    probe_run(p, cpu);
    return worst;
}

/* ---- one node -------------------------------------------------------------------------------------------------- */

static void compare(probe *p, rt_session *cpu, rt_session *cuda, int precision)
{
    for (int i = 0; i < rt_session_output_count(cpu); i++) {
        const rt_tensor *want = rt_session_output_at(cpu, i), *got = rt_session_output(cuda, want->name);
        const double apart = got ? distance(got, want) : INFINITY;
        /* The loss is a sum of all elements, which can cancel. */
        if (strcmp(want->name, "loss") == 0 || !(apart > precisions[precision].tolerance)) continue;
        if (apart <= 2 * sensitivity(p, cpu, i)) continue;
        fail_msg("%s, %s, seed %d, opset %d: output %s differs by %.1e", p->form->op, precisions[precision].name,
                 (int)p->seed, p->w.m.opset, want->name, apart);
    }
}

static void check(const form *f, uint64_t seed, int precision)
{
    probe p;
    const bool is_open = probe_open(&p, f, seed, precisions[precision].type, FORM_GIVEN);
    rt_session *cpu = is_open ? probe_session(&p, "cpu") : NULL, *cuda = cpu ? probe_session(&p, "cuda") : NULL;
    if (cpu && !cuda) fail_msg("%s, seed %d: %s", f->op, (int)seed, diag_first_error(p.d));
    if (cuda && probe_run(&p, cpu)) {
        if (!probe_run(&p, cuda)) fail_msg("%s, seed %d: %s", f->op, (int)seed, diag_first_error(p.d));
        compare(&p, cpu, cuda, precision);
    }
    rt_session_close(cuda);
    rt_session_close(cpu);
    probe_close(&p);
}

static bool check_form(const form *f, void *user)
{
    (void)user;
    for (int precision = 0; precision < 3; precision++)
        for (uint64_t seed = first_seed; seed < first_seed + seeds && !f->random; seed++) check(f, seed, precision);
    return true;
}

TEST(cuda_computes_what_the_processor_does)
{
    print_message("seeds %d to %d\n", (int)first_seed, (int)(first_seed + seeds - 1));
    assert_true(form_each(check_form, NULL));
}

int main(int argc, char **argv)
{
    first_seed = tier_first(seeds);
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        seeds = strtoull(argv[2], NULL, 10);
    }
    return test_run();
}
