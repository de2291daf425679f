/* trained.h - the training that tests run on the double: tests/models/mlp.onnx in f16 with adamw, and its inputs. */
#ifndef TESTS_CUDA_TRAINED_H
#define TESTS_CUDA_TRAINED_H

#include "tests/cuda/double/double.h"
#include "tests/unit/training.h"

enum { ROWS = 16 };

static const rt_session_options on_cuda = {.device = "cuda", .threads = 1, .no_tune = true};

static ir_module *module;
static float points[ROWS][4];
static int64_t labels[ROWS];

static inline void make_inputs(rt_tensor *inputs)
{
    inputs[0] = (rt_tensor){.name = "x", .dtype = IR_f32, .rank = 2, .dims = {ROWS, 4}, .data = points};
    inputs[1] = (rt_tensor){.name = "label", .dtype = IR_i64, .rank = 1, .dims = {ROWS}, .data = labels};
}

/* Moves the points of step 0 a bit further in each step. */
static inline void move_points(int step)
{
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 4; k++)
            points[i][k] = 2 * philox_unit(philox_word(5, (uint64_t)k, (uint64_t)i)) - 1 + 0.25f * (float)step;
}

static inline void begin(long mode)
{
    double_reset();
    double_mode(mode);
}

static inline void expect_nothing_left(const char *when)
{
    char left[256];
    if (double_live(left, sizeof left)) fail_msg("%s: left %s", when, left);
}

static inline int group_setup(void **state)
{
    scratch *t;
    const compile_options o = training_options(IR_f16);
    (void)state;
    double_install();
    if (scratch_setup((void **)&t)) return -1;
    module = training_module(t, &o, 0);
    scratch_teardown((void **)&t);
    move_points(0);
    for (int i = 0; i < ROWS; i++) labels[i] = points[i][0] > 0;
    return 0;
}

static inline int group_teardown(void **state)
{
    (void)state;
    ir_module_free(module);
    double_reset();
    return 0;
}

#endif
