/* test_data.c - SPEC strings, the sample order of epochs, batches in every dtype, and the underlying random
 * generator. */
#include "ir/base/philox.h"
#include "runtime/data/npz.h"
#include "tests/data.h"
#include "tests/unit/scratch.h"

enum { ROWS = 50, PIXELS = 6 };

/* Random123's known answers for philox4x32-10. */
TEST(test_philox_known_answers)
{
    static const struct {
        uint64_t key, stream, counter;
        uint32_t words[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        philox_words w = philox_block(known[i].key, known[i].stream, known[i].counter);
        assert_memory_equal(w.v, known[i].words, sizeof w.v);
    }
    assert_int_equal(philox_word(0, 0, 2), 0xbc57ac4c);
    assert_true(philox_bits(0, 0, 1) == 0x9b00dbd8bc57ac4c);
    assert_true(philox_unit(UINT32_MAX) < 1.0f);
    assert_int_equal(philox_below(UINT64_MAX, 10), 9);
    assert_int_equal(philox_below(0, 10), 0);
}

TEST(test_shuffle_is_a_permutation)
{
    uint32_t order[1000], seen[1000] = {0}, fixed = 0;
    rt_shuffle(order, 0, 1, 1);
    rt_shuffle(order, 1, 1, 1);
    assert_int_equal(order[0], 0);
    rt_shuffle(order, 1000, 7, 3);
    for (uint32_t i = 0; i < 1000; i++) seen[order[i]]++, fixed += order[i] == i;
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
    assert_true(fixed < 10);
    /* The final position of element 0 of four is uniform: chi-square with 3 degrees of freedom. */
    double counts[4] = {0}, chi = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        rt_shuffle(order, 4, seed, 0);
        for (uint32_t i = 0; i < 4; i++) counts[i] += order[i] == 0;
    }
    for (int i = 0; i < 4; i++) chi += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    assert_true(chi < 16.3); /* p = 0.001 */
}

/* ---- a small IDX folder: all pixels of image i are i, label i is i % 10 ---- */

static void write_folder(scratch *t)
{
    char images[16 + ROWS * PIXELS] = "\0\0\x8\x3\0\0\0\x32\0\0\0\x2\0\0\0\x3";
    char labels[8 + ROWS] = "\0\0\x8\x1\0\0\0\x32";
    for (int i = 0; i < ROWS; i++) {
        memset(images + 16 + i * PIXELS, i, PIXELS);
        labels[8 + i] = (char)(i % 10);
    }
    scratch_write(t, "train-images-idx3-ubyte", images, sizeof images);
    scratch_write(t, "train-labels-idx1-ubyte", labels, sizeof labels);
}

static rt_dataset *open_folder(scratch *t, const char *options)
{
    char spec[256];
    rt_dataset *ds = NULL;
    snprintf(spec, sizeof spec, "idx:%s%s", t->folder, options);
    ampc_status s = rt_dataset_open(spec, &(rt_dataset_options){.split = RT_TRAIN}, t->d, &ds);
    if (s != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return ds;
}

TEST_SCRATCH(test_idx_fields)
{
    write_folder(t);
    rt_dataset *ds = open_folder(t, "");
    assert_int_equal(rt_dataset_rows(ds), ROWS);
    assert_int_equal(rt_dataset_field_count(ds), 2);
    int x = rt_dataset_find(ds, "images"), y = rt_dataset_find(ds, "labels");
    assert_int_equal(rt_dataset_find(ds, "other"), -1);
    const rt_field *f = rt_dataset_field(ds, (size_t)x);
    assert_int_equal(f->dtype, IR_f32);
    assert_int_equal(f->rank, 2);
    assert_int_equal(rt_field_elements(f), PIXELS);
    assert_int_equal(rt_dataset_field(ds, (size_t)y)->rank, 0);
    assert_int_equal(rt_dataset_batches(ds, 16), 3);
    rt_dataset_close(ds);
    rt_dataset_close(NULL);
}

/* The image and label of each sample stay together; an epoch uses each sample at most once; two epochs differ. */
TEST_SCRATCH(test_epochs)
{
    write_folder(t);
    rt_dataset *ds = open_folder(t, "");
    rt_position p = {.seed = 5};
    int order[2][48];
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[ROWS] = {0};
        for (int batch = 0; batch < 3; batch++) {
            float x[16 * PIXELS];
            int64_t y[16];
            assert_int_equal(p.epoch, epoch);
            assert_int_equal(p.batch, batch);
            assert_int_equal(dataset_batch(ds, &p, 16, 0, x, IR_f32, t->d), AMPC_OK);
            assert_int_equal(dataset_batch(ds, &p, 16, 1, y, IR_i64, t->d), AMPC_OK);
            for (int i = 0; i < 16; i++) {
                int sample = (int)(x[i * PIXELS] * 255 + 0.5f);
                assert_true(x[i * PIXELS + PIXELS - 1] == x[i * PIXELS]);
                assert_int_equal(y[i], sample % 10);
                assert_int_equal(seen[sample]++, 0);
                order[epoch][batch * 16 + i] = sample;
            }
            rt_position_advance(&p, ds, 16);
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    rt_dataset_close(ds);
}

/* The position alone determines the next batch, independent of earlier requests. Resuming relies on this. */
TEST_SCRATCH(test_position_is_everything)
{
    write_folder(t);
    rt_dataset *a = open_folder(t, ""), *b = open_folder(t, "");
    uint8_t x[7], y[7];
    for (uint64_t epoch = 5; epoch-- > 0;)
        for (uint64_t batch = 7; batch-- > 0;) {
            rt_position p = {42, epoch, batch},
                        others[] = {{43, batch, epoch}, {42, epoch + 7, batch}, {43, epoch, batch}};
            assert_int_equal(dataset_batch(a, &p, 7, 1, x, IR_u8, t->d), AMPC_OK);
            for (int i = 0; i < 3; i++) assert_int_equal(dataset_batch(b, &others[i], 7, 1, y, IR_u8, t->d), AMPC_OK);
            assert_int_equal(dataset_batch(b, &p, 7, 1, y, IR_u8, t->d), AMPC_OK);
            assert_memory_equal(x, y, sizeof x);
        }
    rt_dataset_close(a);
    rt_dataset_close(b);
}

TEST_SCRATCH(test_normalisation)
{
    write_folder(t);
    rt_dataset *ds = open_folder(t, ",mean=0.25,std=0.5");
    double d[2 * PIXELS];
    float f[2 * PIXELS];
    uint16_t h[2 * PIXELS], b[2 * PIXELS];
    int32_t raw[2 * PIXELS];
    assert_int_equal(rt_dataset_slice(ds, 30, 2, 0, d, IR_f64, t->d), AMPC_OK);
    assert_int_equal(rt_dataset_slice(ds, 30, 2, 0, f, IR_f32, t->d), AMPC_OK);
    assert_int_equal(rt_dataset_slice(ds, 30, 2, 0, h, IR_f16, t->d), AMPC_OK);
    assert_int_equal(rt_dataset_slice(ds, 30, 2, 0, b, IR_bf16, t->d), AMPC_OK);
    assert_int_equal(rt_dataset_slice(ds, 30, 2, 0, raw, IR_i32, t->d), AMPC_OK);
    for (int i = 0; i < 2 * PIXELS; i++) {
        float want = ((float)(30 + i / PIXELS) / 255.0f - 0.25f) / 0.5f;
        assert_true(f[i] == want && d[i] == (double)want);
        assert_int_equal(h[i], ir_f32_to_f16(want));
        assert_int_equal(b[i], ir_f32_to_bf16(want));
        assert_int_equal(raw[i], 30 + i / PIXELS);
    }
    rt_dataset_close(ds);
}

TEST_SCRATCH(test_limit_and_permuted_labels)
{
    write_folder(t);
    rt_dataset *plain = open_folder(t, ",limit=20"), *mixed = open_folder(t, ",permute-labels=3,limit=20");
    uint8_t a[20], b[20];
    int counts[10] = {0}, moved = 0;
    assert_int_equal(rt_dataset_rows(mixed), 20);
    assert_int_equal(rt_dataset_slice(plain, 0, 20, 1, a, IR_u8, t->d), AMPC_OK);
    assert_int_equal(rt_dataset_slice(mixed, 0, 20, 1, b, IR_u8, t->d), AMPC_OK);
    for (int i = 0; i < 20; i++) counts[a[i]]++, counts[b[i]]--, moved += a[i] != b[i];
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], 0);
    assert_true(moved > 5);
    assert_int_equal(rt_dataset_slice(mixed, 7, 1, 0, a, IR_u8, t->d), AMPC_OK);
    assert_int_equal(a[0], 7); /* images are unchanged */
    rt_dataset_close(plain);
    rt_dataset_close(mixed);
}

/* ---- npz and npy ---- */

static void save_npz(scratch *t, int64_t rows_x, int64_t rows_y)
{
    double x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int32_t y[4] = {3, 1, 2, 0};
    rt_array a[2] = {
        {.name = (char[]){"x"},
         .dtype = IR_f64,
         .rank = 2,
         .dims = {rows_x, 3},
         .bytes = (size_t)rows_x * 24,
         .data = x},
        {.name = (char[]){"y"}, .dtype = IR_i32, .rank = 1, .dims = {rows_y}, .bytes = (size_t)rows_y * 4, .data = y}};
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
    assert_int_equal(npy_write(scratch_path(t, "x.npy"), &a[0], t->d), AMPC_OK);
    assert_int_equal(npy_write(scratch_path(t, "y.npy"), &a[1], t->d), AMPC_OK);
    a[1].rank = 0, a[1].bytes = 4;
    assert_int_equal(npy_write(scratch_path(t, "s.npy"), &a[1], t->d), AMPC_OK);
}

/* "@" in the pattern is replaced by the folder. */
static ampc_status open_spec(scratch *t, const char *pattern, rt_dataset **ds)
{
    char spec[512];
    size_t n = 0;
    for (const char *p = pattern; *p; p++)
        if (*p == '@') n += (size_t)snprintf(spec + n, sizeof spec - n, "%s", t->folder);
        else spec[n++] = *p;
    spec[n] = 0;
    return rt_dataset_open(spec, &(rt_dataset_options){.split = RT_TEST}, t->d, ds);
}

TEST_SCRATCH(test_npz_and_npy)
{
    static const char *const specs[] = {"npz:@/d.npz", "npy:x=@/x.npy,y=@/y.npy"};
    save_npz(t, 4, 4);
    for (int i = 0; i < 2; i++) {
        rt_dataset *ds;
        float x[6];
        int64_t y[2];
        assert_int_equal(open_spec(t, specs[i], &ds), AMPC_OK);
        assert_int_equal(rt_dataset_rows(ds), 4);
        assert_int_equal(rt_dataset_slice(ds, 1, 2, (size_t)rt_dataset_find(ds, "x"), x, IR_f32, t->d), AMPC_OK);
        assert_int_equal(rt_dataset_slice(ds, 1, 2, (size_t)rt_dataset_find(ds, "y"), y, IR_i64, t->d), AMPC_OK);
        for (int k = 0; k < 6; k++) assert_true(x[k] == (float)(k + 3));
        assert_int_equal(y[0], 1);
        assert_int_equal(y[1], 2);
        rt_dataset_close(ds);
    }
}

/* Arrays that the caller describes as whole count no samples and are read entirely. */
TEST_SCRATCH(test_whole_arrays)
{
    float h[6] = {0, 1, 2, 3, 4, 5}, got[6], scale = 0.5f;
    int64_t x[12] = {0};
    rt_array a[3] = {{.name = (char[]){"h"}, .dtype = IR_f32, .rank = 2, .dims = {2, 3}, .bytes = sizeof h, .data = h},
                     {.name = (char[]){"s"}, .dtype = IR_f32, .rank = 0, .bytes = sizeof scale, .data = &scale},
                     {.name = (char[]){"x"}, .dtype = IR_i64, .rank = 2, .dims = {4, 3}, .bytes = sizeof x, .data = x}};
    const rt_field fields[] = {{.name = "h", .whole = true}, {.name = "s", .whole = true}, {.name = "x"}};
    rt_dataset_options o = {.fields = fields, .n_fields = 3};
    char spec[512];
    rt_dataset *ds;
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 3, t->d), AMPC_OK);
    snprintf(spec, sizeof spec, "npz:%s", scratch_path(t, "d.npz"));
    assert_int_equal(rt_dataset_open(spec, &o, t->d, &ds), AMPC_OK);
    assert_int_equal(rt_dataset_rows(ds), 4);
    const size_t index = (size_t)rt_dataset_find(ds, "h");
    assert_int_equal(rt_dataset_field(ds, index)->rank, 2);
    for (int64_t first = 0; first < 4; first++) {
        memset(got, 0, sizeof got);
        assert_int_equal(rt_dataset_slice(ds, first, 1, index, got, IR_f32, t->d), AMPC_OK);
        assert_memory_equal(got, h, sizeof h);
    }
    assert_int_equal(dataset_batch(ds, &(rt_position){.batch = 1}, 2, index, got, IR_f32, t->d), AMPC_OK);
    assert_memory_equal(got, h, sizeof h);
    rt_dataset_close(ds);
    o.n_fields = 0;
    assert_int_equal(rt_dataset_open(spec, &o, t->d, &ds), AMPC_REJECTED);
    scratch_expect(t, "a scalar has no samples");
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
    o.n_fields = 3;
    assert_int_equal(rt_dataset_open(spec, &o, t->d, &ds), AMPC_REJECTED);
    scratch_expect(t, "the file has no arrays with samples");
}

/* If another array has several dimensions, a flat array has several elements per sample. */
TEST_SCRATCH(test_flat_labels)
{
    float x[12] = {0};
    int64_t y[8] = {0, 1, 2, 3, 4, 5, 6, 7}, got[8];
    rt_array a[2] = {{.name = (char[]){"y"}, .dtype = IR_i64, .rank = 1, .dims = {8}, .bytes = sizeof y, .data = y},
                     {.name = (char[]){"x"}, .dtype = IR_f32, .rank = 2, .dims = {4, 3}, .bytes = sizeof x, .data = x}};
    rt_dataset *ds;
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
    assert_int_equal(open_spec(t, "npz:@/d.npz,permute-labels=3", &ds), AMPC_OK);
    assert_int_equal(rt_dataset_rows(ds), 4);
    assert_int_equal(rt_dataset_field(ds, 0)->rank, 1);
    assert_int_equal(rt_dataset_field(ds, 0)->dims[0], 2);
    assert_int_equal(rt_dataset_slice(ds, 0, 4, 0, got, IR_i64, t->d), AMPC_OK);
    for (int i = 0; i < 8; i += 2) assert_true(got[i] % 2 == 0 && got[i + 1] == got[i] + 1);
    rt_dataset_close(ds);
    a[0].dims[0] = 6, a[0].bytes = 48;
    assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
    assert_int_equal(open_spec(t, "npz:@/d.npz", &ds), AMPC_REJECTED);
    scratch_expect(t, "6 samples, but 'x' has 4");
}

/* clang-format off */
static const struct {
    const char *spec;
    ampc_status status;
    const char *message;
} bad_specs[] = {
    {"", AMPC_USAGE, "unknown kind"},
    {"cvs:a", AMPC_USAGE, "unknown kind"},
    {"synthetics", AMPC_USAGE, "unknown kind"},
    {"idx:", AMPC_USAGE, "the path is missing"},
    {"npy:limit=3", AMPC_USAGE, "NAME=FILE is missing"},
    {"npy:x=", AMPC_USAGE, "expected NAME=FILE"},
    {"npy:x=@/x.npy,x=@/y.npy", AMPC_USAGE, "duplicate name 'x'"},
    {"npy:x=@/x.npy,permute-labels=1", AMPC_USAGE, "finds no array of samples named"},
    {"synthetic,permute-labels=1", AMPC_USAGE, "finds no array of samples named"},
    {"idx:@/absent", AMPC_IO, "absent"},
    {"npz:@/absent", AMPC_IO, "absent"},
    {"npz:@/d.npz", AMPC_REJECTED, "3 samples, but 'x' has 4"},
    {"npz:@/x.npy", AMPC_REJECTED, "x.npy"},
    {"npy:x=@/x.npy,s=@/s.npy", AMPC_REJECTED, "a scalar has no samples"},
};
/* clang-format on */

TEST_SCRATCH(test_bad_specs)
{
    save_npz(t, 4, 3);
    for (size_t i = 0; i < sizeof bad_specs / sizeof *bad_specs; i++) {
        rt_dataset *ds;
        assert_int_equal(open_spec(t, bad_specs[i].spec, &ds), bad_specs[i].status);
        scratch_expect(t, bad_specs[i].message);
    }
    save_npz(t, 0, 0);
    rt_dataset *ds;
    assert_int_equal(open_spec(t, "npz:@/d.npz", &ds), AMPC_REJECTED);
    scratch_expect(t, "0 samples");
}

/* ---- synthetic ---- */

TEST_SCRATCH(test_synthetic)
{
    rt_field fields[] = {{.name = "x", .dtype = IR_f16, .rank = 2, .dims = {70, 9}},
                         {.name = "y", .dtype = IR_i64, .rank = 0, .bound = 10},
                         {.name = "m", .dtype = IR_bool, .rank = 1, .dims = {3}}};
    rt_dataset_options o = {.fields = fields, .n_fields = 3, .seed = 9};
    rt_dataset *ds, *again;
    assert_int_equal(rt_dataset_open("synthetic", &o, t->d, &ds), AMPC_OK);
    assert_int_equal(rt_dataset_rows(ds), 8192);
    rt_dataset_close(ds);
    assert_int_equal(rt_dataset_open("synthetic,rows=100", &o, t->d, &ds), AMPC_OK);
    assert_int_equal(rt_dataset_open("synthetic,rows=100", &o, t->d, &again), AMPC_OK);
    float *x = malloc(100 * 630 * sizeof *x), *part = malloc(630 * sizeof *part);
    double sum = 0, squares = 0;
    assert_int_equal(rt_dataset_slice(ds, 0, 100, 0, x, IR_f32, t->d), AMPC_OK);
    for (int i = 0; i < 63000; i++) sum += x[i], squares += x[i] * x[i];
    assert_true(sum / 63000 < 0.02 && sum / 63000 > -0.02);
    assert_true(squares / 63000 < 1.02 && squares / 63000 > 0.98);
    assert_int_equal(rt_dataset_slice(again, 37, 1, 0, part, IR_f32, t->d), AMPC_OK); /* any single row is the same */
    assert_memory_equal(part, x + 37 * 630, 630 * sizeof *x);
    int64_t y[100];
    int counts[10] = {0};
    assert_int_equal(dataset_batch(ds, &(rt_position){0}, 100, 1, y, IR_i64, t->d), AMPC_OK);
    for (int i = 0; i < 100; i++) counts[y[i]]++;
    for (int i = 0; i < 10; i++) assert_true(counts[i] > 0);
    uint8_t m[300];
    assert_int_equal(rt_dataset_slice(ds, 0, 100, 2, m, IR_bool, t->d), AMPC_OK);
    for (int i = 0; i < 300; i++) assert_true(m[i] <= 1);
    free(x);
    free(part);
    rt_dataset_close(ds);
    rt_dataset_close(again);
}
