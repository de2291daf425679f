/* test_losses.c - the built-in losses and their gradients against PyTorch, in f64 (1e-9) and f32 (1e-5).
 *
 * Each row of losses.def has an output x, its labels, and what torch_losses.py computes for them. */
#include "tests/train/loss_cases.h"

#include <math.h>

static void expect_near(const struct loss_case *c, const char *what, double got, double expected, double scale,
                        double bound)
{
    if (!(fabs(got - expected) <= bound * fmax(1, scale)))
        fail_msg("%s (%s): %s is %.12g, PyTorch has %.12g", c->name, c->loss, what, got, expected);
}

static void run_case(const struct loss_case *c, ir_dtype dtype, double bound)
{
    const size_t n = loss_count(&c->x);
    double *gradient = calloc(n + 1, sizeof *gradient), largest = 0;
    const double loss = loss_run(c->loss, IR_OP_add, &c->x, &c->label, dtype, gradient);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(c->gradient[i]));
    expect_near(c, "the loss", loss, c->expected, fabs(c->expected), bound);
    for (size_t i = 0; i < n; i++) expect_near(c, "a gradient", gradient[i], c->gradient[i], largest, bound);
    free(gradient);
}

TEST(losses_match_in_f64)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], IR_f64, 1e-9);
}

TEST(losses_match_in_f32)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], IR_f32, 1e-5);
}
