/* test_join_gradients.c - an update that computes its gradient (runtime/plan/join_gradients.c) has the bits of the two
 * steps, for each optimizer and any number of threads, and changes nothing if it is skipped. */
#include "ir/base/philox.h"
#include "tests/unit/session_fixture.h"

enum { M = 230, C = 130, WEIGHTS = M * C * 9, X = 2 * C * 12, DY = 2 * M * 4, STEPS = 2, MAX_STATES = 4 };

/* Updates of @w and the slots @a, @b and @c. */
static const struct {
    const char *update;
    int states;
} rows[] = {
    {"sgd @w, %dw, @lr, @skip", 1},
    {"momentum @w, @a, %dw, @lr, @skip {weight_decay=0.25}", 2},
    {"adamw @w, @a, @b, %dw, @step, @lr, @skip", 3},
    {"rmsprop_centered @w, @a, @b, @c, %dw, @lr, @skip", 4},
};
static const char *const states[MAX_STATES] = {"w", "a", "b", "c"};

static void load_row(scratch *t, int row)
{
    static const char shape[] = "f32[230,130,3,3]";
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fputs("state @lr : f32[] = 0.01\nconst @step : i64[] = 3\n", f);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "param @%s : %s = zero\n", states[i], shape);
    fprintf(f,
            "graph @g(@x : f32[2,130,3,4], @dy : f32[2,230,2,2], @skip : bool[]) {\nbackward:\n"
            "  %%dw, %%db = conv_grad_weight @dy, @x {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], "
            "shape=[230,130,3,3]} : %s, f32[230]\nupdate:\n  ",
            shape);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "%s%%%s1", i ? ", " : "", states[i]);
    fprintf(f, " = %s : ", rows[row].update);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "%s%s", i ? ", " : "", shape);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "\n  store @%s, %%%s1", states[i], states[i]);
    fputs("\n}\n", f);
    fclose(f);
    load(t, text);
    free(text);
}

static void fill(float *to, int n, uint64_t key)
{
    for (int i = 0; i < n; i++) to[i] = philox_unit(philox_word(29, key, (uint64_t)i)) - 0.5f;
}

/* Trains and returns w and its slots after each step, the last of which is skipped. */
static float *train(scratch *t, const rt_session_options *o, int n_states)
{
    static float x[X], dy[DY];
    float *all = calloc((size_t)(STEPS + 1) * MAX_STATES * WEIGHTS, sizeof *all), *to = all;
    uint8_t skip = 0;
    const rt_tensor in[] = {{"x", IR_f32, 4, {2, C, 3, 4}, x},
                            {"dy", IR_f32, 4, {2, M, 2, 2}, dy},
                            {.name = "skip", .dtype = IR_bool, .data = &skip}};
    if (open_with(t, o) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    for (int step = 0; step <= STEPS; step++) {
        fill(x, X, (uint64_t)(2 * step));
        fill(dy, DY, (uint64_t)(2 * step + 1));
        skip = step == STEPS;
        run_ok(t, "g", in, 3);
        for (int i = 0; i < n_states; i++, to += WEIGHTS)
            memcpy(to, storage_floats(t, states[i]), WEIGHTS * sizeof *to);
    }
    rt_session_close(session);
    session = NULL;
    return all;
}

static void bits_are_those_of_two_steps(void **state)
{
    static const rt_session_options joined = {.threads = 1}, threads = {.threads = 3},
                                    apart = {.threads = 1, .no_fuse = true};
    scratch *t = *state;
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++) {
        const size_t step = (size_t)rows[row].states * WEIGHTS * sizeof(float);
        load_row(t, row);
        float *expected = train(t, &apart, rows[row].states), *got = train(t, &joined, rows[row].states);
        if (memcmp(got, expected, (STEPS + 1) * step) != 0) fail_msg("%s: other bits", rows[row].update);
        free(got);
        got = train(t, &threads, rows[row].states);
        if (memcmp(got, expected, (STEPS + 1) * step) != 0) fail_msg("%s: other bits by threads", rows[row].update);
        assert_memory_not_equal(got, (char *)got + step, step);
        assert_memory_equal((char *)got + (STEPS - 1) * step, (char *)got + STEPS * step, step);
        free(got);
        free(expected);
        ir_module_free(module);
        module = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bits_are_those_of_two_steps, scratch_setup, finish)};
    return cmocka_run_group_tests_name("join_gradients", tests, NULL, NULL);
}
