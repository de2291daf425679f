/* test_sources.c - every kind of data: a model learns from it, training stopped within an epoch and resumed ends in the
 * same bytes for any number of threads that read ahead, and bad input is one message that names the file.
 *
 * A new kind is a row in `sources` and its bad input rows in refused_sources.def. */
#include "runtime/data/data_summary.h"
#include "runtime/data/loader.h"
#include "tests/module.h"
#include "tests/unit/image_files.h"
#include "tests/unit/source_files.h"
#include "tests/unit/training.h"

#include <math.h>

enum { BATCH = 4, STEPS = 16, STOP = 5 }; /* 24 samples: 6 batches in an epoch */

#define MODEL(param, input, body) \
    "param " param " = zero\ngraph @forward(" input ") as forward {\n" body "  output \"y\" = %y\n}\n"
#define CLASSIFIER MODEL("@w : f32[3,2]", "@x : f32[N,3]", "  %y = matmul @x, @w : f32[N,2]\n")
#define LANGUAGE \
    MODEL("@table : f32[256,256]", "@ids : i64[N,8]", \
          "  %e = gather @table, @ids {axis=0} : f32[N,8,256]\n" \
          "  %y = reshape %e {shape=[8*N,256]} : f32[8*N,256]\n")
#define PICTURES \
    MODEL("@w : f32[3,2]", "@x : f32[N,3,8,8]", \
          "  %m = reduce_mean @x {axes=[2,3], keepdims=false} : f32[N,3]\n  %y = matmul %m, @w : f32[N,2]\n")

#define SEGMENTER \
    MODEL("@w : f32[2,3,1,1]", "@x : f32[N,3,8,8]", \
          "  %y = conv @x, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[N,2,8,8]\n")

/* Autoencoders. */
#define AUTOENCODER MODEL("@w : f32[3,3]", "@x : f32[N,3]", "  %y = matmul @x, @w : f32[N,3]\n")
#define GRAY_TO_GRAY MODEL("@w : f32[8,8]", "@x : f32[N,8,8]", "  %y = matmul @x, @w : f32[N,8,8]\n")
#define PICTURE_TO_PICTURE MODEL("@w : f32[8,8]", "@x : f32[N,3,8,8]", "  %y = matmul @x, @w : f32[N,3,8,8]\n")

static const struct {
    const char *name;
    void (*write)(scratch *t);
    const char *spec; /* @: the folder */
    const char *model;
    const char *loss; /* NULL: ce */
} sources[] = {
    {"npz", write_npz, "npz:@/d.npz", CLASSIFIER, NULL},
    {"npy", write_npy, "npy:x=@/x.npy,label=@/y.npy", CLASSIFIER, NULL},
    {"csv", write_csv, "csv:@/d.csv", CLASSIFIER, NULL},
    {"csv of chosen columns", write_wide_csv, "csv:@/d.csv,label=kind,columns=a+b+c,delimiter=semicolon", CLASSIFIER,
     NULL},
    {"csv, autoencoder", write_csv, "csv:@/d.csv,target=input", AUTOENCODER, "mse"},
    {"csv without header", write_bare_csv, "csv:@/d.csv,header=no,label=column4,delimiter=tab", CLASSIFIER, NULL},
    {"csv with categories", write_categories, "csv:@/d.csv,encode=one-hot", CLASSIFIER, NULL},
    {"csv with numbers as categories", write_csv, "csv:@/d.csv,categories=b+c", CLASSIFIER, NULL},
    {"csv, rows dropped", write_missing, "csv:@/d.csv,missing=drop,columns=a+b+c", CLASSIFIER, NULL},
    {"csv, means", write_missing, "csv:@/d.csv,missing=mean,columns=a+b+kind,validation=0.25", CLASSIFIER, NULL},
    {"csv, a value instead", write_missing, "csv:@/d.csv,missing=0.25,columns=a+b+c", CLASSIFIER, NULL},
    {"csv, order of the file", write_csv, "csv:@/d.csv,order=file", CLASSIFIER, NULL},
    {"csv, training part", write_csv, "csv:@/d.csv,validation=0.25", CLASSIFIER, NULL},
    {"text", write_text, "text:@/d.txt", LANGUAGE, NULL},
    {"overlapping text", write_text, "text:@/d.txt,stride=3,order=file", LANGUAGE, NULL},
    {"tokens of 16 bits", write_tokens, "tokens:@/d.u16,dtype=u16", LANGUAGE, NULL},
    {"tokens of 32 bits", write_tokens, "tokens:@/d.u32,dtype=u32,context=8", LANGUAGE, NULL},
    {"folder", write_images, "folder:@/images,mean=0.4", PICTURES, NULL},
    {"folder with other files", write_other_files, "folder:@/images,mean=0.4", PICTURES, NULL},
    {"folder, random changes", write_images,
     "folder:@/images,flip=both,crop=2,resized-crop=0.5,mean=0.4/0.5/0.6,std=0.5", PICTURES, NULL},
    {"folder, training part", write_images, "folder:@/images,mean=0.4,validation=0.25,fit=stretch", PICTURES, NULL},
    {"folder, autoencoder", write_images, "folder:@/images,flip=both,crop=2,target=input", PICTURE_TO_PICTURE, "mse"},
    {"folder without classes, autoencoder", write_flat_images, "folder:@/images,target=input,mixup=1",
     PICTURE_TO_PICTURE, "mse"},
    {"csv of images", write_listed, "csv:@/d.csv,images=file,mean=0.4,flip=both", PICTURES, NULL},
    {"folder with masks", write_masks, "folder:@/images,masks=@/masks,mean=0.4,classes=dark+light", SEGMENTER, NULL},
    {"folder with masks, random changes", write_ignored_masks,
     "folder:@/images,masks=@/masks,flip=both,crop=2,resized-crop=0.5,mean=0.4", SEGMENTER, "ce,ignore_index=255"},
    {"folder with masks, mixed", write_masks, "folder:@/images,masks=@/masks,mean=0.4,mixup=0.4,flip=both", SEGMENTER,
     "soft_ce"},
    {"csv of images and masks", write_listed_masks, "csv:@/d.csv,images=file,masks=mask,mean=0.4,crop=2", SEGMENTER,
     NULL},
    {"folder, mixed", write_images, "folder:@/images,mean=0.4,mixup=0.4,flip=both", PICTURES, "soft_ce"},
    {"idx, autoencoder", write_idx, "idx:@,target=input,divide=100", GRAY_TO_GRAY, "mse"},
    {"npz, mixed", write_npz, "npz:@/d.npz,mixup=1", CLASSIFIER, "soft_ce"},
    {"tar", write_tar, "tar:@/d.tar,flip=horizontal,mean=0.4", PICTURES, NULL},
    {"tar in shards", write_shards, "tar:@/s-{08..09}.tar,@/s-1*.tar,divide=100,mean=1", PICTURES, NULL},
    {"synthetic", write_nothing, "synthetic,rows=24", CLASSIFIER, NULL},
};

/* `damage` is done after the data set was opened: then reading is refused, not opening. */
static const struct {
    const char *name;
    void (*write)(scratch *t);
    const char *text, *spec;
    void (*damage)(scratch *t);
    ampc_status status;
    const char *message;
} refused[] = {
#define ROW(name, files, spec, status, message) {name, write_##files, NULL, spec, NULL, AMPC_##status, message},
#define CSV(name, text, spec, status, message) {name, NULL, text, spec, NULL, AMPC_##status, message},
#define DAMAGED(name, files, spec, damage, status, message) \
    {name, write_##files, NULL, spec, damage, AMPC_##status, message},
#include "tests/unit/refused_sources.def"
};

/* The model of the first source of the same kind. */
static const char *model_for(const char *spec)
{
    const size_t kind = strcspn(spec, ":");
    size_t i = 0;
    while (strncmp(sources[i].spec, spec, kind) != 0) i++;
    return sources[i].model;
}

static ir_module *compile_model(scratch *t, const char *text, const char *loss)
{
    compile_options o = training_options(IR_f16);
    ir_module *m = test_module(t->d, text);
    o.level = PASS_O0;
    o.optimizer = "sgd,lr=0.5";
    if (loss) o.loss = loss;
    assert_ok(t, test_compile(m, &o, t->d));
    return m;
}

/* The pattern with the folder in place of each @; valid until the next call. */
static const char *in_folder(const scratch *t, const char *pattern)
{
    static char spec[1024];
    size_t n = 0;
    for (const char *p = pattern; *p; p++)
        if (*p == '@') n += (size_t)snprintf(spec + n, sizeof spec - n, "%s", t->folder);
        else spec[n++] = *p;
    spec[n] = 0;
    return spec;
}

/* `codes`: of a training; NULL: none. */
static ampc_status open_coded(scratch *t, const ir_module *m, const char *pattern, rt_split split, const char *codes,
                              rt_dataset **out)
{
    rt_dataset_options o = {.split = split, .codes = codes};
    rt_field *fields = NULL;
    assert_ok(t, rt_loader_fields(ir_graph_by_role(m, IR_GRAPH_train_step), NULL, t->d, &fields, &o.n_fields));
    o.fields = fields;
    ampc_status s = rt_dataset_open(in_folder(t, pattern), &o, t->d, out);
    free(fields);
    return s;
}

static ampc_status open_data(scratch *t, const ir_module *m, const char *pattern, rt_split split, rt_dataset **out)
{
    return open_coded(t, m, pattern, split, NULL, out);
}

typedef struct course {
    uint64_t stop; /* 0: at the end */
    double first, last;
} course;

static bool on_step(void *user, const rt_step_record *r)
{
    course *c = user;
    if (r->step == 1) c->first = r->loss;
    c->last = r->loss;
    return r->step == c->stop;
}

/* Trains to the end, or to the given step, in the folder if it is not NULL; returns the bytes of the state. */
static char *train(scratch *t, size_t row, int workers, const char *folder, course *c, size_t *n)
{
    ir_module *m = compile_model(t, sources[row].model, sources[row].loss);
    rt_session *s = training_session(t, m);
    rt_dataset *data = NULL;
    rt_trainer *trainer = NULL;
    const rt_trainer_options o = {.batch = BATCH, .steps = STEPS, .lr = -1, .seed = 3, .workers = workers};
    const rt_train_plan plan = {
        .checkpoint_dir = folder, .keep = 2, .resume = folder != NULL, .on_step = on_step, .user = c};
    assert_ok(t, open_data(t, m, sources[row].spec, RT_TRAIN, &data));
    assert_ok(t, rt_trainer_open(s, m, data, &o, t->d, &trainer));
    assert_ok(t, rt_trainer_run(trainer, &plan, t->d));
    char *bytes = training_bytes(s, n);
    rt_trainer_close(trainer);
    rt_dataset_close(data);
    rt_session_close(s);
    ir_module_free(m);
    return bytes;
}

TEST_SCRATCH(test_training)
{
    static const int workers[] = {-1, 0, 1, 3};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        course whole = {0};
        size_t n, m;
        sources[i].write(t);
        char *expected = train(t, i, -1, NULL, &whole, &n);
        if (!(whole.last < whole.first) && sources[i].write != write_nothing)
            fail_msg("%s: the loss went from %g to %g", sources[i].name, whole.first, whole.last);
        for (size_t k = 0; k < sizeof workers / sizeof *workers; k++) {
            course part = {.stop = STOP}, rest = {0};
            const char *folder = scratch_path(t, "checkpoints");
            free(train(t, i, workers[k], folder, &part, &m));
            char *got = train(t, i, workers[(k + 1) % 4], folder, &rest, &m);
            if (m != n || memcmp(got, expected, n) != 0 || rest.last != whole.last)
                fail_msg("%s: resumed with %d workers, the result differs", sources[i].name, workers[k]);
            free(got);
            scratch_clear(folder);
        }
        free(expected);
        scratch_clear(t->folder);
    }
}

static ampc_status read_all(scratch *t, const rt_dataset *data)
{
    ampc_status s = AMPC_OK;
    for (size_t i = 0; i < rt_dataset_field_count(data) && s == AMPC_OK; i++) {
        const size_t n = (size_t)rt_field_elements(rt_dataset_field(data, i));
        double *values = malloc((size_t)rt_dataset_rows(data) * n * sizeof *values);
        s = rt_dataset_slice(data, 0, rt_dataset_rows(data), i, values, IR_f64, t->d);
        free(values);
    }
    return s;
}

TEST_SCRATCH(test_refusals)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ir_module *m = compile_model(t, model_for(refused[i].spec), NULL);
        rt_dataset *data = NULL;
        if (refused[i].text) write_csv_text(t, refused[i].text);
        else refused[i].write(t);
        ampc_status s = open_data(t, m, refused[i].spec, RT_TRAIN, &data);
        if (refused[i].damage) {
            assert_ok(t, s);
            refused[i].damage(t);
            s = read_all(t, data);
        }
        if (s != refused[i].status || diag_count(t->d, DIAG_ERROR) != 1)
            fail_msg("%s: status %d, %zu errors: %s", refused[i].name, (int)s, diag_count(t->d, DIAG_ERROR),
                     diag_first_error(t->d));
        scratch_expect(t, refused[i].message);
        scratch_clear(t->folder);
        rt_dataset_close(data);
        ir_module_free(m);
    }
}

/* The two parts of a split have all samples, and each sample once; classes are numbered in the order of their names. */
TEST_SCRATCH(test_parts)
{
    static const char *const specs[] = {"csv:@/d.csv,validation=0.25", "csv:@/d.csv,validation=0.25,split-seed=9",
                                        "csv:@/d.csv,validation=0.25,order=file"};
    ir_module *m = compile_model(t, CLASSIFIER, NULL);
    write_csv(t);
    for (size_t i = 0; i < 3; i++) {
        rt_dataset *parts[2];
        double a[SAMPLES];
        bool seen[SAMPLES] = {false};
        assert_ok(t, open_data(t, m, specs[i], RT_TRAIN, &parts[0]));
        assert_ok(t, open_data(t, m, specs[i], RT_TEST, &parts[1]));
        assert_int_equal(rt_dataset_rows(parts[0]), SAMPLES * 3 / 4);
        assert_int_equal(rt_dataset_rows(parts[1]), SAMPLES / 4);
        assert_ok(t, rt_dataset_slice(parts[0], 0, 18, (size_t)rt_dataset_find(parts[0], "a"), a, IR_f64, t->d));
        assert_ok(t, rt_dataset_slice(parts[1], 0, 6, (size_t)rt_dataset_find(parts[1], "a"), a + 18, IR_f64, t->d));
        for (int k = 0; k < SAMPLES; k++) seen[lround(100 * a[k])] = true;
        for (int k = 0; k < SAMPLES; k++) assert_true(seen[k]);
        assert_int_equal(lround(100 * a[18]) == 18, i == 2); /* the order of the file: the last ones */
        rt_dataset_close(parts[0]);
        rt_dataset_close(parts[1]);
    }
    ir_module_free(m);
}

enum { TOKENS = 64 };

/* A file of the tokens 0, 1, .. */
static void write_numbers(scratch *t, int64_t tokens)
{
    unsigned char bytes[2 * TOKENS] = {0};
    for (int64_t i = 0; i < tokens; i++) bytes[2 * i] = (unsigned char)i;
    scratch_write(t, "d.u16", bytes, 2 * (size_t)tokens);
}

/* Tokens 0, 1, .. as windows: marks[k] is set for each token that a window of the part contains. Returns the windows,
 * 0 if there are none. */
static int64_t mark_windows(scratch *t, const char *spec, rt_split split, int64_t context, bool *marks)
{
    rt_dataset *ds = NULL;
    int64_t windows[TOKENS * TOKENS];
    const ampc_status s = rt_dataset_open(spec, &(rt_dataset_options){.split = split}, t->d, &ds);
    if (s == AMPC_REJECTED) {
        scratch_expect(t, " leaves no sample for ");
        diag_clear(t->d);
        return 0;
    }
    assert_ok(t, s);
    const int64_t n = rt_dataset_rows(ds);
    assert_ok(t, rt_dataset_slice(ds, 0, n, (size_t)rt_dataset_find(ds, "tokens"), windows, IR_i64, t->d));
    for (int64_t i = 0; i < n * context; i++) marks[windows[i]] = true;
    rt_dataset_close(ds);
    return n;
}

/* The windows of both parts of one split have no token in common, and none that could be in a part is left out. */
static void check_windows(scratch *t, int64_t tokens, int64_t context, int64_t stride, double share, const char *how)
{
    char spec[400];
    bool trained[TOKENS] = {false}, held[TOKENS] = {false};
    snprintf(spec, sizeof spec, "tokens:%s/d.u16,dtype=u16,context=%d,stride=%d,validation=%g%s", t->folder,
             (int)context, (int)stride, share, how);
    write_numbers(t, tokens);
    const int64_t rows = (tokens - 1 - context) / stride + 1, held_out = llround((double)rows * share);
    const int64_t between = stride < context ? context / stride : 0;
    const int64_t n = mark_windows(t, spec, RT_TRAIN, context, trained);
    const int64_t m = mark_windows(t, spec, RT_TEST, context, held);
    for (int i = 0; i < TOKENS; i++)
        if (trained[i] && held[i]) fail_msg("%s: token %d of %d is in both parts", spec, i, (int)tokens);
    const bool possible = held_out > 0 && held_out + between < rows;
    const int64_t most = rows - held_out - between, least = most - between < 1 ? 1 : most - between;
    if (m != (possible ? held_out : 0) || n < (possible ? least : 0) || n > (possible ? most : 0))
        fail_msg("%s: %d and %d of %d windows", spec, (int)n, (int)m, (int)rows);
    if (possible && strstr(how, "order=file")) assert_true(n == most && held[(rows - 1) * stride]);
}

/* Without an overlap, the samples held out are those of earlier versions, because trainings are resumed. */
TEST_SCRATCH(test_separate_windows)
{
    char spec[400];
    bool held[TOKENS] = {false};
    write_numbers(t, 40);
    snprintf(spec, sizeof spec, "tokens:%s/d.u16,dtype=u16,context=4,validation=0.3", t->folder);
    assert_int_equal(mark_windows(t, spec, RT_TEST, 4, held), 3);
    for (int i = 0; i < 9; i++) assert_int_equal(held[4 * i], i == 1 || i == 2 || i == 4);
}

TEST_SCRATCH(test_overlapping_windows)
{
    static const double shares[] = {0.05, 0.3, 0.5, 0.9};
    static const char *const how[] = {"", ",order=file", ",split-seed=1", ",split-seed=2"};
    for (int64_t context = 1; context <= 9; context += context < 5 ? 1 : 4)
        for (int64_t stride = 1; stride <= context + 1; stride++)
            for (int64_t tokens = context + 1; tokens < TOKENS; tokens += tokens < context + 4 ? 1 : 13)
                for (size_t i = 0; i < 16; i++) check_windows(t, tokens, context, stride, shares[i / 4], how[i % 4]);
}

typedef struct remarks {
    size_t count;
    char last[512];
} remarks;

static void keep_remark(void *user, diag_level level, const char *message)
{
    remarks *r = user;
    if (level != DIAG_REMARK) return;
    r->count++;
    snprintf(r->last, sizeof r->last, "%s", message);
}

/* Opens the training part of data that are accepted with one remark, which contains this text. */
static rt_dataset *open_remarked(scratch *t, const ir_module *m, const char *spec, const char *expected)
{
    remarks kept = {0};
    rt_dataset *data = NULL;
    diag *own = t->d;
    t->d = diag_new(keep_remark, &kept);
    assert_ok(t, open_data(t, m, spec, RT_TRAIN, &data));
    if (kept.count != 1 || !strstr(kept.last, expected)) fail_msg("%s: %zu remarks: %s", spec, kept.count, kept.last);
    diag_free(t->d);
    t->d = own;
    return data;
}

/* Files other than images are counted in one remark; those with the content of images are read. */
TEST_SCRATCH(test_other_files)
{
    ir_module *m = compile_model(t, PICTURES, NULL);
    write_other_files(t);
    rt_dataset *data = open_remarked(t, m, "folder:@/images",
                                     "/images: remark: 3 files skipped: neither PNG nor JPEG, such as ");
    assert_int_equal(rt_dataset_rows(data), SAMPLES);
    rt_dataset_close(data);
    ir_module_free(m);
}

/* A folder that has some of the classes of a training numbers them as the training does. */
TEST_SCRATCH(test_folder_codes)
{
    static const char codes[] = "{\"label\":[\"c\",\"b\",\"a\"]}";
    ir_module *m = compile_model(t, PICTURES, NULL);
    rt_dataset *data = NULL;
    int64_t labels[SAMPLES];
    write_images(t);
    assert_ok(t, open_coded(t, m, "folder:@/images", RT_TEST, codes, &data));
    assert_ok(t, rt_dataset_slice(data, 0, SAMPLES, (size_t)rt_dataset_find(data, "labels"), labels, IR_i64, t->d));
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(labels[i], i < SAMPLES / 2 ? 2 : 1);
    rt_dataset_close(data);
    assert_int_equal(open_coded(t, m, "folder:@/images", RT_TEST, "{\"label\":[\"a\"]}", &data), AMPC_REJECTED);
    scratch_expect(t, "/images/b: error: the training images have no class of this name");
    ir_module_free(m);
}

TEST_SCRATCH(test_classes)
{
    static const struct {
        const char *spec;
        int64_t first, second;
    } rows[] = {{"csv:@/d.csv,delimiter=;,label=kind,columns=a", 0, 1},
                {"csv:@/d.csv,delimiter=;,label=kind,columns=a,classes=fish+dog+cat", 2, 1}};
    ir_module *m = compile_model(t, CLASSIFIER, NULL);
    write_wide_csv(t);
    for (size_t i = 0; i < 2; i++) {
        rt_dataset *data = NULL;
        int64_t label[2];
        assert_ok(t, open_data(t, m, rows[i].spec, RT_TRAIN, &data));
        assert_ok(t, rt_dataset_slice(data, 0, 2, (size_t)rt_dataset_find(data, "label"), label, IR_i64, t->d));
        assert_int_equal(label[0], rows[i].first);
        assert_int_equal(label[1], rows[i].second);
        rt_dataset_close(data);
    }
    ir_module_free(m);
}

/* A training that meets a value that is not finite names the line or file that it comes from, also after a line that is
 * dropped. */
TEST_SCRATCH(test_places)
{
    static const struct {
        void (*write)(scratch *t);
        const char *spec, *model, *place;
    } rows[] = {{write_csv_huge, "csv:@/d.csv,missing=drop,validation=0.25", CLASSIFIER, "row 14 of"},
                {write_images, "folder:@/images,divide=1e-36,limit=13", PICTURES, "/images/"},
                {write_tar, "tar:@/d.tar,divide=1e-36", PICTURES, "/d.tar: v1.0/0"},
                {write_npz_huge, "npz:@/d.npz", CLASSIFIER, "(row 9 of the data)"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_module *m = compile_model(t, rows[i].model, NULL);
        rt_session *s = training_session(t, m);
        rt_dataset *data = NULL;
        rt_trainer *trainer = NULL;
        const rt_trainer_options o = {.batch = BATCH, .steps = STEPS, .lr = -1, .seed = 3, .workers = 2};
        rows[i].write(t);
        assert_ok(t, open_data(t, m, rows[i].spec, RT_TRAIN, &data));
        assert_ok(t, rt_trainer_open(s, m, data, &o, t->d, &trainer));
        assert_int_equal(rt_trainer_run(trainer, &(rt_train_plan){.keep = 2}, t->d),
                         *rows[i].place == 'r' ? AMPC_REJECTED : AMPC_NUMERIC); /* r: does not fit in f32 */
        scratch_expect(t, rows[i].place);
        rt_trainer_close(trainer);
        rt_dataset_close(data);
        rt_session_close(s);
        ir_module_free(m);
        scratch_clear(t->folder);
    }
}

/* A pixel that fp16 cannot hold is an error of the sample that has it. */
TEST_SCRATCH(test_wide_pixels)
{
    ir_module *m = compile_model(t, GRAY_TO_GRAY, "mse");
    rt_dataset *data = NULL;
    uint16_t values[16 * SAMPLES];
    write_idx(t);
    assert_ok(t, open_data(t, m, "idx:@,target=input,divide=1e-4", RT_TRAIN, &data));
    const size_t n = (size_t)rt_field_elements(rt_dataset_field(data, 0));
    assert_true(n <= sizeof values / sizeof *values);
    ampc_status s = AMPC_OK;
    for (int64_t i = 0; i < rt_dataset_rows(data) && s == AMPC_OK; i++)
        s = rt_dataset_slice(data, i, i + 1, 0, values, IR_f16, t->d);
    assert_int_equal(s, AMPC_REJECTED);
    scratch_expect(t, "which is beyond the range of f16");
    rt_dataset_close(data);
    ir_module_free(m);
}

static void expect_values(scratch *t, const rt_dataset *data, const char *field, int64_t n, const double *expected)
{
    double values[SAMPLES * 4];
    const int index = rt_dataset_find(data, field);
    assert_true(index >= 0);
    assert_int_equal(rt_dataset_rows(data) * rt_field_elements(rt_dataset_field(data, (size_t)index)), n);
    assert_ok(t, rt_dataset_slice(data, 0, rt_dataset_rows(data), (size_t)index, values, IR_f64, t->d));
    for (int64_t i = 0; i < n; i++)
        if (values[i] != expected[i]) fail_msg("%s[%d] is %g, not %g", field, (int)i, values[i], expected[i]);
}

/* Evaluations read by the names and means of the training, whatever their files have. */
TEST_SCRATCH(test_codes)
{
    static const struct {
        const char *text, *spec;
        ampc_status status;
        const char *message;
    } refused_parts[] = {
        {"a,kind,label\n1,pink,cat\n", "csv:@/d.csv", AMPC_REJECTED,
         "/d.csv:2: error: column 'kind': 'pink' is not one of the categories of the training"},
        {"a,kind,label\n1,red,cat\n1,red,cow\n", "csv:@/d.csv", AMPC_REJECTED,
         "/d.csv:3: error: column 'label': 'cow' is not one of the classes of the training"},
        {"a,kind,label\nmany,red,cat\n", "csv:@/d.csv", AMPC_REJECTED,
         "/d.csv:2: error: column 'a': 'many' is not a finite number"},
        {"a,kind,label\n1,red,cat\n", "csv:@/d.csv,classes=dog+cat", AMPC_USAGE, "the training had other classes"},
    };
    ir_module *m = compile_model(t, CLASSIFIER, NULL);
    rt_dataset *data = NULL;
    write_csv_text(t, "a,kind,label\n1,red,dog\n?,,ant\n4,blue,cat\n");
    assert_ok(t, open_data(t, m, "csv:@/d.csv,missing=mean,encode=one-hot", RT_TRAIN, &data));
    expect_values(t, data, "x", 12, (const double[]){1, 0, 0, 1, 2.5, 1, 0, 0, 4, 0, 1, 0});
    char *codes = rt_codebook_print(rt_dataset_codes(data));
    assert_string_equal(codes, "{\"label\":[\"ant\",\"cat\",\"dog\"],\"a\":2.5,\"kind\":[\"\",\"blue\",\"red\"]}");
    rt_dataset_close(data);
    write_csv_text(t, "a,kind,label\n3,red,cat\n,red,dog\n");
    assert_ok(t, open_coded(t, m, "csv:@/d.csv,missing=mean", RT_TEST, codes, &data));
    expect_values(t, data, "x", 4, (const double[]){3, 2, 2.5, 2});
    expect_values(t, data, "label", 2, (const double[]){1, 2});
    rt_dataset_close(data);
    for (size_t i = 0; i < sizeof refused_parts / sizeof *refused_parts; i++) {
        write_csv_text(t, refused_parts[i].text);
        assert_int_equal(open_coded(t, m, refused_parts[i].spec, RT_TEST, codes, &data), refused_parts[i].status);
        scratch_expect(t, refused_parts[i].message);
    }
    assert_int_equal(open_coded(t, m, "csv:@/d.csv", RT_TEST, "{\"a\":[1]}", &data), AMPC_REJECTED);
    scratch_expect(t, "field 'a': error: neither the names nor the mean of a field");
    free(codes);
    ir_module_free(m);
}

/* ---- descriptions ---- */

static void expect_close(const char *what, double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-6 * (1 + fabs(expected)))) fail_msg("%s: %g, not %g", what, actual, expected);
}

/* Every kind of data can be described without a model. */
TEST_SCRATCH(test_described)
{
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        rt_dataset *data = NULL;
        scratch_clear(scratch_path(t, "images"));
        sources[i].write(t);
        const rt_dataset_options o = {.split = RT_TRAIN, .describes = true};
        if (strcmp(sources[i].name, "synthetic") == 0) continue;
        if (rt_dataset_open(in_folder(t, sources[i].spec), &o, t->d, &data) != AMPC_OK)
            fail_msg("%s: %s", sources[i].name, diag_first_error(t->d));
        for (size_t k = 0; k < rt_dataset_field_count(data); k++) {
            rt_field_summary f;
            assert_int_equal(rt_dataset_summarize(data, k, 10, t->d, &f), AMPC_OK);
            if (f.rows != rt_dataset_rows(data) || f.failed || !f.all.n)
                fail_msg("%s: %s", sources[i].name, rt_dataset_field(data, k)->name);
            rt_field_summary_clear(&f);
        }
        rt_dataset_close(data);
        diag_clear(t->d);
    }
}

static rt_field_summary summary_of(scratch *t, const char *spec, const char *field)
{
    rt_dataset *data = NULL;
    rt_field_summary f;
    const rt_dataset_options o = {.split = RT_TRAIN, .describes = true};
    if (rt_dataset_open(in_folder(t, spec), &o, t->d, &data) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    const int index = rt_dataset_find(data, field);
    assert_true(index >= 0);
    assert_int_equal(rt_dataset_summarize(data, (size_t)index, 10, t->d, &f), AMPC_OK);
    rt_dataset_close(data);
    return f;
}

TEST_SCRATCH(test_summaries)
{
    write_npz(t);
    rt_field_summary f = summary_of(t, "npz:@/d.npz", "label");
    assert_int_equal(f.classes, 2);
    assert_int_equal(f.counts[0] + f.counts[1], SAMPLES);
    expect_close("mean", f.all.mean, 0.5);
    expect_close("std", rt_moments_deviation(&f.all), 0.5);
    rt_field_summary_clear(&f);
    write_csv_text(t, "a,kind,label\n1,red,dog\n?,,ant\n4,blue,cat\n");
    f = summary_of(t, "csv:@/d.csv", "a");
    assert_int_equal(f.missing, 1);
    expect_close("min", f.min, 1);
    expect_close("max", f.max, 4);
    rt_field_summary_clear(&f);
    write_csv_text(t, "a,label\n?,1\n,0\n");
    f = summary_of(t, "csv:@/d.csv", "a");
    assert_int_equal(f.missing, 2);
    assert_int_equal(f.all.n, 0);
    rt_field_summary_clear(&f);
    write_images(t);
    f = summary_of(t, "folder:@/images,size=4x4", "images");
    assert_int_equal(f.images, SAMPLES);
    assert_int_equal(f.channels, 3);
    assert_true(f.min_size[0] > 0 && f.min_size[0] <= f.max_size[0]);
    rt_field_summary_clear(&f);
}
