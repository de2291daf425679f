/* test_schedules.c - learning rates against those of PyTorch's schedulers (schedules.txt, written by make_schedules.py),
 * the limits of the syntax, and the mean that a plateau judges. */
#include "runtime/train/schedule.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { MAX_STEPS = 400 };

typedef struct row {
    char *spec, *rates, *losses; /* losses NULL: none */
    double lr;
    int64_t steps;
} row;

static bool read_row(char *line, row *r)
{
    line[strcspn(line, "\n")] = 0;
    r->spec = strsep(&line, "\t");
    char *lr = strsep(&line, "\t"), *steps = strsep(&line, "\t");
    r->rates = strsep(&line, "\t");
    r->losses = line;
    if (!r->rates) return false;
    r->lr = strtod(lr, NULL);
    r->steps = strtoll(steps, NULL, 10);
    return true;
}

static int read_numbers(char *text, double *out)
{
    int n = 0;
    for (char *end; n < MAX_STEPS; text = end, n++) {
        out[n] = strtod(text, &end);
        if (end == text) break;
    }
    return n;
}

static void check_rate(const char *spec, int step, double rate, double expected)
{
    if (fabs(rate - expected) > 1e-12 * fmax(1, fabs(expected)))
        fail_msg("%s at step %d: %.17g, not %.17g", spec ? spec : "none", step, rate, expected);
}

static void follow(scratch *t, const row *r)
{
    double expected[MAX_STEPS], losses[MAX_STEPS];
    rt_schedule s;
    rt_plateau p = {0};
    if (rt_schedule_parse(r->spec, r->lr, r->steps, t->d, &s) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    const int n = read_numbers(r->rates, expected);
    assert_true(n >= 60);
    if (!r->losses)
        for (int i = 0; i < n; i++) check_rate(r->spec, i, rt_schedule_rate(&s, i), expected[i]);
    else {
        assert_int_equal(read_numbers(r->losses, losses), n);
        for (int i = 0; i < n; i++) {
            check_rate(r->spec, i, rt_plateau_rate(&p, &s, i), expected[i]);
            rt_plateau_observe(&p, &s, 1000, losses[i]);
        }
    }
}

TEST_SCRATCH(test_pytorch)
{
    static char line[1 << 16];
    FILE *f = fopen(AMPC_SOURCE_DIR "/tests/train/schedules.txt", "re");
    int rows = 0;
    assert_non_null(f);
    for (row r; fgets(line, sizeof line, f); rows++) {
        assert_true(read_row(line, &r));
        follow(t, &r);
    }
    fclose(f);
    assert_int_equal(rows, 19);
}

/* Defaults, ends of pieces and warm-ups. */
TEST_SCRATCH(test_schedules)
{
    static const struct {
        const char *text;
        int64_t step;
        double rate;
    } rows[] = {
        {NULL, 50, 0.8},
        {"constant", 99, 0.8},
        {"linear", 200, 0},
        {"linear,end=0.2", 50, 0.5},
        {"linear,steps=10", 5, 0.4},
        {"cosine,end=0.1", 100, 0.1},
        {"cosine,warmup=10", 0, 0.08},
        {"cosine,warmup=10", 9, 0.8},
        {"cosine,warmup=10", 10, 0.8},
        {"cosine:warmup=10", 55, 0.4},
        {"step", 32, 0.8},
        {"step", 33, 0.08},
        {"step,every=10,factor=0.5,warmup=4", 13, 0.8},
    };
    rt_schedule s, again;
    char one[RT_SCHEDULE_TEXT], two[RT_SCHEDULE_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(rt_schedule_parse(rows[i].text, 0.8, 100, t->d, &s), AMPC_OK);
        check_rate(rows[i].text, (int)rows[i].step, rt_schedule_rate(&s, rows[i].step), rows[i].rate);
    }
    assert_int_equal(rt_schedule_parse("cosine", 0.8, 100, t->d, &s), AMPC_OK);
    assert_int_equal(rt_schedule_parse("cosine", 0.8, 101, t->d, &again), AMPC_OK);
    rt_schedule_print(&s, one);
    rt_schedule_print(&again, two);
    assert_string_not_equal(one, two);
}

/* Text that was printed is read as the same schedule. */
TEST_SCRATCH(test_round_trip)
{
    static const char *const specs[] = {"constant",
                                        "step,every=3",
                                        "one-cycle,anneal=linear,rise=0.4",
                                        "plateau,patience=3,every=5",
                                        "polynomial,power=0.5,warmup=3,end=1e-3",
                                        "constant,steps=5;cosine,steps=20,lr=0.7;exponential,factor=0.5"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        char text[RT_SCHEDULE_TEXT], again[RT_SCHEDULE_TEXT];
        rt_schedule a, b;
        assert_int_equal(rt_schedule_parse(specs[i], 0.3, 100, t->d, &a), AMPC_OK);
        rt_schedule_print(&a, text);
        if (strstr(text, "every=0")) continue; /* the default, which cannot be written */
        assert_int_equal(rt_schedule_parse(text, 9, 5, t->d, &b), AMPC_OK);
        rt_schedule_print(&b, again);
        assert_string_equal(text, again);
        for (int64_t k = 0; k < 120; k++) assert_true(rt_schedule_rate(&a, k) == rt_schedule_rate(&b, k));
    }
}

/* tests/expect/train/settings.test has the messages. */
TEST_SCRATCH(test_refusals)
{
    static const char *const rows[] = {"exp",           "linear,end",       "linear,end=x",   "step,every=0",
                                       "cosine,warm=3", "linear,warmup=-1", "step,factor=nan"};
    rt_schedule s;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(rt_schedule_parse(rows[i], 0.8, 100, t->d, &s), AMPC_USAGE);
    assert_int_equal(rt_schedule_parse(NULL, NAN, 100, t->d, &s), AMPC_USAGE);
    diag_clear(t->d);
}

/* Short and degenerate runs have finite rates. */
TEST_SCRATCH(test_short_runs)
{
    static const char *const kinds[] = {"constant",
                                        "linear",
                                        "cosine",
                                        "step",
                                        "polynomial",
                                        "exponential",
                                        "one-cycle",
                                        "plateau",
                                        "one-cycle,rise=0",
                                        "one-cycle,rise=1",
                                        "polynomial,power=0",
                                        "exponential,factor=0",
                                        "cosine,warmup=50"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int64_t steps = 0; steps < 6; steps++) {
            rt_schedule s;
            assert_int_equal(rt_schedule_parse(kinds[i], 0.8, steps, t->d, &s), AMPC_OK);
            for (int64_t k = 0; k < 10; k++) {
                const double rate = rt_schedule_rate(&s, k);
                if (!(rate >= 0 && rate <= 0.8 + 1e-12)) fail_msg("%s of %d steps: %g", kinds[i], (int)steps, rate);
            }
        }
}

TEST_SCRATCH(test_plateau_mean)
{
    rt_schedule s;
    rt_plateau p = {0};
    assert_int_equal(rt_schedule_parse("plateau,patience=0,factor=0.5,warmup=2", 0.8, 100, t->d, &s), AMPC_OK);
    assert_true(rt_plateau_rate(&p, &s, 0) == 0.4);
    for (int i = 0; i < 4; i++) rt_plateau_observe(&p, &s, 4, i); /* an epoch with mean 1.5 */
    assert_int_equal(p.means, 1);
    assert_true(p.best == 1.5);
    for (int i = 0; i < 3; i++) rt_plateau_observe(&p, &s, 4, 1);
    assert_true(rt_plateau_rate(&p, &s, 7) == 0.8);
    rt_plateau_observe(&p, &s, 4, 9); /* mean 3 */
    assert_true(rt_plateau_rate(&p, &s, 8) == 0.4);
}
