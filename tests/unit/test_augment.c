/* test_augment.c - random changes of samples: what they do to pixels, their distributions, and that they depend on
 * (seed, epoch, row) alone. */
#include "runtime/data/data.h"
#include "runtime/data/mix.h"
#include "runtime/data/npz.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 40, SIDE = 4, PAD = 2, PIXELS = 3 * SIDE * SIDE };

/* Element k of sample i is 1 + i * PIXELS + k: no two are equal, and none is 0. */
static void write_samples(scratch *t, bool channels_last)
{
    static float x[ROWS][PIXELS];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS * PIXELS; i++) (&x[0][0])[i] = (float)(i + 1);
    for (int i = 0; i < ROWS; i++) y[i] = i % 5;
    rt_array a[2] = {{.name = (char[]){"x"}, .dtype = IR_f32, .rank = 4, .bytes = sizeof x, .data = x},
                     {.name = (char[]){"y"}, .dtype = IR_i64, .rank = 1, .bytes = sizeof y, .data = y}};
    const int64_t first[] = {ROWS, 3, SIDE, SIDE}, last[] = {ROWS, SIDE, SIDE, 3};
    memcpy(a[0].dims, channels_last ? last : first, sizeof first);
    a[1].dims[0] = ROWS;
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
}

static rt_dataset *open_samples(scratch *t, const char *options, bool probabilities)
{
    char spec[300];
    rt_dataset *ds = NULL;
    const rt_field label = {.name = "label", .dtype = IR_f32, .label = true, .rank = 1, .dims = {5}};
    snprintf(spec, sizeof spec, "npz:%s/d.npz,%s", t->folder, options);
    const rt_dataset_options o = {.fields = &label, .n_fields = probabilities};
    if (rt_dataset_open(spec, &o, t->d, &ds) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return ds;
}

static void read_row(scratch *t, const rt_dataset *ds, uint32_t row, const rt_draw *draw, const char *name, float *dst)
{
    const size_t field = (size_t)rt_dataset_find(ds, name);
    assert_int_equal(rt_dataset_read(ds, &row, 1, draw, field, dst, IR_f32, t->d), AMPC_OK);
}

/* Element (c, y, x) of a sample in its layout. */
static float at(const float *sample, bool last, int c, int y, int x)
{
    return sample[last ? (y * SIDE + x) * 3 + c : (c * SIDE + y) * SIDE + x];
}

/* Finds the one flip and shift that explains the sample; returns -1 if there is none. */
static int explain(const float *from, const float *to, bool last)
{
    for (int code = 0; code < 4 * 25; code++) {
        const int flip_x = code & 1, flip_y = code >> 1 & 1, dx = code / 4 % 5 - PAD, dy = code / 20 - PAD;
        bool same = true;
        for (int i = 0; same && i < PIXELS; i++) {
            const int c = i / 16, y = i / 4 % 4, x = i % 4;
            const int sx = (flip_x ? SIDE - 1 - x : x) + dx, sy = (flip_y ? SIDE - 1 - y : y) + dy;
            const bool inside = sx >= 0 && sx < SIDE && sy >= 0 && sy < SIDE;
            same = at(to, last, c, y, x) == (inside ? at(from, last, c, sy, sx) : 0);
        }
        if (same) return code;
    }
    return -1;
}

TEST_SCRATCH(test_moves)
{
    for (int last = 0; last < 2; last++) {
        int seen[100] = {0}, different = 0;
        write_samples(t, last);
        rt_dataset *ds = open_samples(t, "flip=both,crop=2", false);
        for (uint32_t i = 0; i < 40 * ROWS; i++) {
            float from[PIXELS], to[PIXELS], again[PIXELS];
            const rt_draw draw = {7, i / ROWS};
            read_row(t, ds, i % ROWS, NULL, "x", from);
            assert_true(from[0] == (float)(i % ROWS * PIXELS + 1)); /* evaluation: unchanged */
            read_row(t, ds, i % ROWS, &draw, "x", to);
            read_row(t, ds, i % ROWS, &draw, "x", again);
            assert_memory_equal(to, again, sizeof to);
            const int code = explain(from, to, last);
            assert_true(code >= 0);
            seen[code]++;
        }
        for (int i = 0; i < 100; i++) different += seen[i] > 0; /* each has probability 1/100 */
        assert_true(different > 95);
        rt_dataset_close(ds);
    }
}

TEST_SCRATCH(test_no_vertical_flip)
{
    int flipped = 0;
    write_samples(t, false);
    rt_dataset *ds = open_samples(t, "flip=horizontal", false);
    for (uint32_t i = 0; i < 10 * ROWS; i++) {
        float from[PIXELS], to[PIXELS];
        read_row(t, ds, i % ROWS, NULL, "x", from);
        read_row(t, ds, i % ROWS, &(rt_draw){1, i / ROWS}, "x", to);
        const int code = explain(from, to, false) - (20 * PAD + 4 * PAD);
        assert_true(code == 0 || code == 1);
        flipped += code;
    }
    assert_true(abs(flipped - 200) < 40); /* 4 standard deviations */
    rt_dataset_close(ds);
}

/* Labels with a value per pixel move like the pixels; what comes from outside is the class that the loss leaves out. */
TEST_SCRATCH(test_maps)
{
    static float x[ROWS][SIDE][SIDE];
    static int64_t y[ROWS][SIDE][SIDE];
    for (int i = 0; i < ROWS * SIDE * SIDE; i++) (&y[0][0][0])[i] = (int64_t)((&x[0][0][0])[i] = (float)(i + 1));
    const rt_array a[2] = {
        {.name = (char[]){"x"}, .dtype = IR_f32, .rank = 3, .dims = {ROWS, SIDE, SIDE}, .bytes = sizeof x, .data = x},
        {.name = (char[]){"y"}, .dtype = IR_i64, .rank = 3, .dims = {ROWS, SIDE, SIDE}, .bytes = sizeof y, .data = y}};
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
    for (int ignores = 0; ignores < 2; ignores++) {
        char spec[300];
        rt_dataset *ds;
        const rt_field label = {.name = "label", .dtype = IR_i64, .label = true, .ignored = ignores ? -7 : INT64_MIN};
        const rt_dataset_options o = {.fields = &label, .n_fields = 1};
        snprintf(spec, sizeof spec, "npz:%s/d.npz,flip=both,crop=2", t->folder);
        assert_int_equal(rt_dataset_open(spec, &o, t->d, &ds), AMPC_OK);
        for (uint32_t i = 0; i < 10 * ROWS; i++) {
            float pixels[SIDE * SIDE], labels[SIDE * SIDE];
            read_row(t, ds, i % ROWS, &(rt_draw){7, i / ROWS}, "x", pixels);
            read_row(t, ds, i % ROWS, &(rt_draw){7, i / ROWS}, "y", labels);
            for (int k = 0; k < SIDE * SIDE; k++)
                assert_true(labels[k] == (pixels[k] == 0 && ignores ? -7 : pixels[k]));
        }
        rt_dataset_close(ds);
    }
}

/* Mean 1/2 and variance 1 / (4 (2 alpha + 1)) of Beta(alpha, alpha). */
TEST_SCRATCH(test_shares)
{
    static const double alphas[] = {0.1, 0.4, 1};
    enum { DRAWS = 20000 };
    for (size_t k = 0; k < 3; k++) {
        double sum = 0, squares = 0, partners = 0, alpha = alphas[k];
        for (int i = 0; i < DRAWS; i++) {
            const rt_mix m = rt_mix_draw(alpha, &(rt_draw){3, 5}, i, 100);
            assert_true(m.share >= 0 && m.share <= 1 && m.partner >= 0 && m.partner < 100);
            sum += m.share, squares += (double)m.share * m.share, partners += (double)m.partner;
        }
        const double mean = sum / DRAWS, variance = squares / DRAWS - mean * mean;
        assert_true(fabs(mean - 0.5) < 0.015);
        assert_true(fabs(variance * 4 * (2 * alpha + 1) - 1) < 0.04);
        assert_true(fabs(partners / DRAWS - 49.5) < 1);
    }
}

/* Sample and label are mixed in the same proportion with the same sample, never with one that was held out. */
TEST_SCRATCH(test_mixed_samples)
{
    write_samples(t, false);
    rt_dataset *ds = open_samples(t, "mixup=0.5,validation=0.5,order=file", true);
    for (uint32_t row = 0; row < (uint32_t)ROWS / 2; row++)
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            const rt_draw draw = {11, epoch};
            const rt_mix m = rt_mix_draw(0.5, &draw, row, ROWS / 2);
            float x[PIXELS], y[5], label[5] = {0};
            read_row(t, ds, row, &draw, "x", x);
            read_row(t, ds, row, &draw, "y", y);
            label[row % 5] += m.share;
            label[m.partner % 5] += 1 - m.share;
            for (int k = 0; k < PIXELS; k++) {
                const double own = (double)row * PIXELS + k + 1, other = (double)m.partner * PIXELS + k + 1;
                assert_true(fabs(x[k] - (m.share * own + (1 - m.share) * other)) < 1e-3);
            }
            for (int k = 0; k < 5; k++) assert_true(fabsf(y[k] - label[k]) < 1e-6f);
        }
    float y[5];
    read_row(t, ds, 3, NULL, "y", y); /* evaluation */
    for (int k = 0; k < 5; k++) assert_true(y[k] == (k == 3));
    rt_dataset_close(ds);
}

TEST_SCRATCH(test_too_many_classes)
{
    const rt_field label = {.name = "label", .dtype = IR_f32, .label = true, .rank = 1, .dims = {4}};
    char spec[300];
    float y[ROWS][4];
    rt_dataset *ds;
    write_samples(t, false);
    snprintf(spec, sizeof spec, "npz:%s/d.npz", t->folder);
    assert_int_equal(rt_dataset_open(spec, &(rt_dataset_options){.fields = &label, .n_fields = 1}, t->d, &ds), AMPC_OK);
    assert_int_equal(rt_dataset_slice(ds, 0, ROWS, 1, y, IR_f32, t->d), AMPC_REJECTED);
    scratch_expect(t, "the class of sample 4 is 4, but the model has 4 classes");
    rt_dataset_close(ds);
}
