/* test_api.c - ampc.h from a user's perspective: the complete workflow and names. */
#include "tests/unit/api_handles.h"

#include <math.h>
#include <sys/resource.h>

static double train(handles *h, int steps)
{
    ampc_step_result r = {.struct_size = sizeof r};
    for (int i = 0; i < steps; i++) OK(h->c, ampc_train_step(h->s, h->in, 2, &r));
    return r.loss;
}

static void expect_equal(handles *h, const char *key, const ampc_tensor *expected)
{
    ampc_tensor *have;
    OK(h->c, ampc_session_get(h->s, key, &have));
    assert_int_equal(ampc_tensor_bytes(have), ampc_tensor_bytes(expected));
    assert_memory_equal(ampc_tensor_data(have), ampc_tensor_data((ampc_tensor *)(uintptr_t)expected),
                        ampc_tensor_bytes(expected));
    ampc_tensor_free(have);
}

/* ---- the complete workflow ---- */

TEST(test_training)
{
    handles h = open_all(&training);
    ampc_step_result r = {.struct_size = sizeof r};
    double loss;
    assert_non_null(strstr(ampc_module_summary(h.m), "float ops in fp16"));
    OK(h.c, ampc_train_step(h.s, h.in, 2, &r));
    assert_int_equal(r.step, 1);
    assert_true(r.loss > 0.4 && r.loss < 3 && isnan(r.grad_norm) && r.loss_scale > 1);
    assert_float_equal(r.lr, 0.02, 1e-6);
    OK(h.c, ampc_eval_step(h.s, h.in, 2, &loss));
    assert_true(train(&h, 100) < 0.5 * r.loss);
    double after;
    OK(h.c, ampc_eval_step(h.s, h.in, 2, &after));
    assert_true(after < 0.7 * loss);
    ampc_tensor *scores;
    OK(h.c, ampc_session_get(h.s, "output/scores", &scores));
    assert_int_equal(ampc_tensor_rank(scores), 2);
    assert_int_equal(ampc_tensor_dims(scores)[0], 32);
    assert_int_equal(ampc_tensor_dims(scores)[1], 2);
    assert_int_equal(ampc_tensor_dtype(scores), AMPC_F32);
    ampc_tensor_free(scores);
    close_all(&h);
}

static void expect_not_computed(handles *h, const char *key)
{
    double value;
    expect_failure(ampc_session_get_number(h->s, key, &value), AMPC_USAGE, h->c, "'train_step' did not compute");
    expect_failure(ampc_session_get_number(h->s, key, &value), AMPC_USAGE, h->c, "ampc_select");
}

/* A training step computes its loss and the selected outputs, for every caller; other graphs compute all outputs. */
TEST(test_selected_results)
{
    static const char *const chosen[] = {"output/scores", "grad_norm"}, *const loss[] = {"loss"},
                             *const wrong[] = {"grad/fc1.weight"};
    handles h = open_all(&training);
    ampc_step_result r = {.struct_size = sizeof r};
    ampc_tensor *scores;
    double value, norm;
    OK(h.c, ampc_train_step(h.s, h.in, 2, &r));
    OK(h.c, ampc_session_get_number(h.s, "loss", &value));
    assert_float_equal(value, r.loss, 0);
    OK(h.c, ampc_session_get_number(h.s, "found_inf", &value));
    expect_not_computed(&h, "grad_norm");
    expect_not_computed(&h, "output/scores");
    OK(h.c, ampc_select(h.s, "train_step", chosen, 2));
    OK(h.c, ampc_train_step(h.s, h.in, 2, &r));
    OK(h.c, ampc_session_get(h.s, "output/scores", &scores));
    ampc_tensor_free(scores);
    OK(h.c, ampc_session_get_number(h.s, "grad_norm", &norm));
    assert_true(norm > 0);
    assert_float_equal(r.grad_norm, norm, 0);
    assert_true(isfinite(r.loss));
    OK(h.c, ampc_select(h.s, "train_step", loss, 1));
    OK(h.c, ampc_session_run(h.s, "train_step", h.in, 2));
    expect_not_computed(&h, "output/scores");
    OK(h.c, ampc_select(h.s, "train_step", NULL, 0));
    OK(h.c, ampc_session_run(h.s, "train_step", h.in, 2));
    OK(h.c, ampc_session_get(h.s, "output/scores", &scores));
    ampc_tensor_free(scores);
    OK(h.c, ampc_session_run(h.s, "eval", h.in, 2));
    OK(h.c, ampc_session_get(h.s, "output/scores", &scores));
    ampc_tensor_free(scores);
    expect_failure(ampc_select(h.s, "train_step", wrong, 1), AMPC_REJECTED, h.c,
                   "graph @train_step has no output 'grad/fc1.weight'");
    expect_failure(ampc_select(h.s, "nothing", loss, 1), AMPC_USAGE, h.c, "no entry graph 'nothing'");
    expect_failure(ampc_session_get_number(h.s, "output/none", &value), AMPC_USAGE, h.c, "neither state nor a result");
    close_all(&h);
}

TEST(test_tensors_by_key)
{
    handles h = open_all(&training);
    ampc_tensor *w, *g;
    double value;
    train(&h, 2);
    OK(h.c, ampc_session_get_number(h.s, "state/step", &value));
    assert_float_equal(value, 2, 0);
    OK(h.c, ampc_session_set_number(h.s, "state/lr", 0.5));
    OK(h.c, ampc_session_get_number(h.s, "state/lr", &value));
    assert_float_equal(value, 0.5, 0);
    OK(h.c, ampc_session_run(h.s, "grad", h.in, 2));
    OK(h.c, ampc_session_get(h.s, "grad/fc1.weight", &g));
    OK(h.c, ampc_session_get(h.s, "param/fc1.weight", &w));
    assert_int_equal(ampc_tensor_bytes(g), ampc_tensor_bytes(w));
    assert_string_equal(ampc_tensor_name(w), "param/fc1.weight");
    memset(ampc_tensor_data(w), 0, ampc_tensor_bytes(w));
    OK(h.c, ampc_session_set(h.s, "param/fc1.weight", w));
    expect_equal(&h, "param/fc1.weight", w);
    int found = 0;
    for (size_t i = 0; ampc_session_key(h.s, i); i++) {
        ampc_tensor *t;
        OK(h.c, ampc_session_get(h.s, ampc_session_key(h.s, i), &t));
        OK(h.c, ampc_session_set(h.s, ampc_session_key(h.s, i), t));
        found += strcmp(ampc_session_key(h.s, i), "buf/bn.mean") == 0;
        found += strcmp(ampc_session_key(h.s, i), "opt/m/fc2.bias") == 0;
        ampc_tensor_free(t);
    }
    assert_int_equal(found, 2);
    expect_failure(ampc_session_get(h.s, "param/none", &g), AMPC_USAGE, h.c, "'param/none'");
    expect_failure(ampc_session_set(h.s, "loss", w), AMPC_USAGE, h.c, "'loss'");
    expect_failure(ampc_session_set(h.s, "param/fc2.weight", w), AMPC_USAGE, h.c, "differ in shape");
    expect_failure(ampc_session_get_number(h.s, "param/fc2.weight", &value), AMPC_USAGE, h.c, "single number");
    ampc_tensor_free(w);
    ampc_tensor_free(g);
    close_all(&h);
}

TEST_SCRATCH(test_checkpoints)
{
    handles h = open_all(&training);
    const char *path = scratch_path(t, "a.safetensors");
    ampc_position position = {1, 2, 3};
    ampc_tensor *w;
    train(&h, 3);
    OK(h.c, ampc_checkpoint_save(h.s, path, &position));
    double next = train(&h, 1);
    OK(h.c, ampc_session_get(h.s, "param/fc1.weight", &w));
    train(&h, 5);
    OK(h.c, ampc_checkpoint_load(h.s, path, &position));
    assert_int_equal(position.epoch, 2);
    assert_int_equal(position.batch, 3);
    assert_float_equal(train(&h, 1), next, 0);
    expect_equal(&h, "param/fc1.weight", w);
    ampc_step_result r = {.struct_size = sizeof r};
    OK(h.c, ampc_train_step(h.s, h.in, 2, &r));
    assert_int_equal(r.step, 5);
    ampc_tensor_free(w);
    handles other = open_all(NULL);
    OK(other.c, ampc_checkpoint_load_weights(other.s, path));
    expect_failure(ampc_checkpoint_load(other.s, path, NULL), AMPC_REJECTED, other.c, "another model");
    close_all(&other);
    close_all(&h);
}

static void expect_file(scratch *t, const char *name, const char *begin, size_t n, bool equal)
{
    size_t size;
    char *bytes = scratch_read(t, name, &size);
    assert_true(size >= n);
    assert_int_equal(memcmp(bytes, begin, n) == 0, equal);
    free(bytes);
}

static ampc_status write_named(handles *h, int i, const char *path)
{
    switch (i) {
    case 0: return ampc_checkpoint_save(h->s, path, NULL);
    case 1: return ampc_export_onnx(h->s, path);
    case 2: return ampc_module_convert(h->m, &training, path);
    default: return ampc_predict(h->s, "synthetic,rows=8", 4, path);
    }
}

/* A function that writes a file replaces one of another kind; if it fails, that remains. */
TEST_SCRATCH(test_replacing)
{
    static const char picture[] = "\x89PNG\r\n\x1a\n a picture";
    static const char *const names[] = {"a.safetensors", "a.onnx", "b.onnx", "a.npz"};
    struct rlimit usual;
    handles h = open_all(&training);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    for (int i = 0; i < 8; i++) {
        const struct rlimit small = {.rlim_cur = 100, .rlim_max = usual.rlim_max};
        const char *name = names[i / 2], *path = scratch_path(t, name);
        const bool fails = i % 2 == 0;
        scratch_write(t, name, picture, sizeof picture);
        if (fails) assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        const ampc_status s = write_named(&h, i / 2, path);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
        if (s != (fails ? AMPC_IO : AMPC_OK)) fail_msg("%s: %d: %s", name, (int)s, ampc_context_message(h.c));
        expect_file(t, name, picture, sizeof picture, fails);
    }
    close_all(&h);
}

/* The checkpoint of a session continues in fp32 and, without the optimizer's state, with another optimizer; its weights
 * start a fine-tuning. */
TEST_SCRATCH(test_other_options)
{
    const char *path = scratch_path(t, "a.safetensors");
    handles h = open_all(&training);
    train(&h, 3);
    OK(h.c, ampc_checkpoint_save(h.s, path, NULL));
    double expected = train(&h, 1), steps, scale;
    ampc_compile_options f32 = training, sgd = training;
    f32.amp = "O0";
    sgd.optimizer = "sgd,lr=0.1";
    handles other = open_all(&f32), third = open_all(&sgd);
    OK(other.c, ampc_checkpoint_load(other.s, path, NULL));
    assert_float_equal(train(&other, 1), expected, 0.01F * (float)expected);
    OK(other.c, ampc_set_loss_scaling(other.s, 0)); /* it has none */
    expect_failure(ampc_checkpoint_load(third.s, path, NULL), AMPC_REJECTED, third.c,
                   "; set reset_optimizer to continue");
    const ampc_load_options reset = {.struct_size = sizeof reset, .reset_optimizer = 1};
    OK(third.c, ampc_checkpoint_load_with(third.s, path, &reset, NULL));
    OK(third.c, ampc_session_get_number(third.s, "state/step", &steps));
    assert_float_equal(steps, 0, 0);
    assert_float_equal(train(&third, 1), expected, 0.01F * (float)expected);
    const char *const head[] = {"fc2.*"}, *const none[] = {"fc9.*"};
    ampc_load_options tune = {.struct_size = sizeof tune, .weights_only = 1, .reinit = head, .n_reinit = 1};
    OK(third.c, ampc_checkpoint_load_with(third.s, path, &tune, NULL));
    tune.reinit = none;
    expect_failure(ampc_checkpoint_load_with(third.s, path, &tune, NULL), AMPC_USAGE, third.c, "'fc9.*'");
    OK(h.c, ampc_set_loss_scaling(h.s, 0));
    train(&h, 2);
    OK(h.c, ampc_session_get_number(h.s, "state/loss_scale", &scale));
    assert_float_equal(scale, 1, 0);
    OK(h.c, ampc_set_loss_scaling(h.s, 1));
    OK(h.c, ampc_session_get_number(h.s, "state/loss_scale", &scale));
    assert_float_equal(scale, 65536, 0);
    close_all(&h);
    close_all(&other);
    close_all(&third);
}

TEST_SCRATCH(test_save_and_load)
{
    handles h = open_all(&training), again = {0};
    const char *path = scratch_path(t, "mlp.amp.ir");
    expect_failure(ampc_module_save(h.m, path), AMPC_USAGE, h.c, "sessions of it are open");
    double first = train(&h, 3);
    ampc_session_free(h.s);
    OK(h.c, ampc_module_save(h.m, path));
    expect_failure(ampc_module_save(h.m, "mlp.onnx"), AMPC_USAGE, h.c, "ends in .ir");
    OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
    assert_float_equal(train(&h, 3), first, 0);
    assert_int_equal(ampc_context_create(NULL, &again.c), AMPC_OK);
    OK(again.c, ampc_module_load(again.c, path, &again.m));
    OK(again.c, ampc_session_open(again.m, &one_thread, &again.s));
    make_inputs(&again);
    assert_float_equal(train(&again, 3), first, 0);
    const char *checkpoint = scratch_path(t, "a.safetensors"); /* the same model, by its hash */
    OK(h.c, ampc_checkpoint_save(h.s, checkpoint, NULL));
    OK(again.c, ampc_checkpoint_load(again.s, checkpoint, NULL));
    assert_int_equal(scratch_count(t), 3);
    scratch_path(t, "mlp.amp.safetensors");
    close_all(&again);
    close_all(&h);
}

static int stop_at_seven(void *user, const ampc_step_result *step)
{
    *(int64_t *)user = step->step;
    return step->step == 7;
}

TEST_SCRATCH(test_train_and_evaluate)
{
    handles h = open_all(&training);
    int64_t last = 0;
    ampc_evaluation e = {.struct_size = sizeof e};
    ampc_train_options o = {.struct_size = sizeof o,
                            .data = "synthetic,rows=100",
                            .epochs = 2,
                            .batch = 10,
                            .checkpoint_dir = t->folder,
                            .progress = stop_at_seven,
                            .user = &last};
    OK(h.c, ampc_train(h.s, &o));
    assert_int_equal(last, 7);
    OK(h.c, ampc_evaluate(h.s, "synthetic,rows=33", 8, &e));
    assert_int_equal(e.samples, 33);
    assert_true(e.loss > 0 && e.accuracy >= 0 && e.accuracy <= 1);
    expect_failure(ampc_train(h.s, &o), AMPC_USAGE, h.c, "run; set ampc_train_options.resume to");
    o.resume = 1;
    OK(h.c, ampc_train(h.s, &o));
    assert_int_equal(last, 20);
    o.steps = 3;
    expect_failure(ampc_train(h.s, &o), AMPC_USAGE, h.c, "either steps or epochs");
    expect_failure(ampc_evaluate(h.s, "npz:/nowhere.npz", 8, &e), AMPC_IO, h.c, "/nowhere.npz");
    scratch_count(t);
    close_all(&h);
}

typedef struct watcher {
    int calls;
    int64_t step;
    double auc, accuracy;
} watcher;

static void note_evaluation(void *user, int64_t step, const ampc_evaluation *result)
{
    watcher *w = user;
    w->calls++;
    w->step = step;
    assert_int_equal(result->samples, 40);
    assert_int_equal(result->n_metrics, 3); /* the loss, the chosen metric, and the watched one */
    assert_string_equal(result->metrics[0].name, "loss");
    assert_string_equal(result->metrics[1].name, "auc");
    assert_string_equal(result->metrics[2].name, "accuracy");
    assert_float_equal(result->metrics[0].value, result->loss, 0);
    w->auc = result->metrics[1].value;
    w->accuracy = result->accuracy;
}

TEST_SCRATCH(test_metrics)
{
    handles h = open_all(&training);
    watcher w = {.calls = 0};
    ampc_evaluation e = {.struct_size = sizeof e}, best = {.struct_size = sizeof best};
    const ampc_train_options o = {.struct_size = sizeof o,
                                  .data = "synthetic,rows=40",
                                  .epochs = 3,
                                  .batch = 10,
                                  .checkpoint_dir = t->folder,
                                  .eval_data = "synthetic,rows=40",
                                  .metrics = "auc",
                                  .best = "accuracy,min-delta=1", /* only the first value is the best */
                                  .early_stop = "accuracy,patience=1,min-delta=1",
                                  .evaluated = note_evaluation,
                                  .user = &w};
    OK(h.c, ampc_train(h.s, &o));
    assert_int_equal(w.calls, 2);
    assert_int_equal(w.step, 8); /* the second epoch was not better, so there is no third */
    OK(h.c, ampc_evaluate_metrics(h.s, o.eval_data, 7, "auc,confusion", &e));
    assert_float_equal(e.metrics[1].value, w.auc, 1e-6);
    assert_true(isnan(e.accuracy)); /* it was not chosen */
    assert_int_equal(e.classes, 2);
    assert_int_equal(e.confusion[0] + e.confusion[1] + e.confusion[2] + e.confusion[3], 40);
    assert_float_equal((double)(e.confusion[0] + e.confusion[3]) / 40, w.accuracy, 1e-12);
    OK(h.c, ampc_checkpoint_load_weights(h.s, scratch_path(t, "best.safetensors")));
    OK(h.c, ampc_evaluate(h.s, o.eval_data, 10, &best));
    assert_true(best.loss != e.loss && best.n_metrics == 2 && !best.confusion);
    expect_failure(ampc_evaluate_metrics(h.s, o.eval_data, 10, "mae", &best), AMPC_USAGE, h.c, "has no meaning here");
    scratch_count(t);
    close_all(&h);
}

static int note_norm(void *user, const ampc_step_result *step)
{
    *(double *)user = step->grad_norm;
    return 0;
}

/* The library's training loop also computes selected outputs. */
TEST(test_norm_of_a_loop)
{
    static const char *const norm[] = {"grad_norm"};
    handles h = open_all(&training);
    double last = 0;
    const ampc_train_options o = {.struct_size = sizeof o,
                                  .data = "synthetic,rows=40",
                                  .steps = 2,
                                  .batch = 10,
                                  .progress = note_norm,
                                  .user = &last};
    OK(h.c, ampc_train(h.s, &o));
    assert_true(isnan(last));
    OK(h.c, ampc_select(h.s, "train_step", norm, 1));
    OK(h.c, ampc_train(h.s, &o));
    assert_true(last > 0);
    close_all(&h);
}

/* Labels for all tokens, i64[8*N], through every input path. */
TEST_SCRATCH(test_token_labels)
{
    static const char folder[] = AMPC_SOURCE_DIR "/tests/train/tokens";
    char model[512], train_data[512], test_data[512];
    int64_t ids[24], label[24];
    const int64_t dims[] = {3, 8, 24, 23};
    snprintf(model, sizeof model, "%s/gpt2-dynamo.onnx", folder);
    snprintf(train_data, sizeof train_data, "npz:%s/train.npz", folder);
    snprintf(test_data, sizeof test_data, "npz:%s/test.npz", folder);
    for (int i = 0; i < 24; i++) ids[i] = i * 5 % 29, label[i] = (i * 5 + 5) % 29;
    handles h = {0};
    ampc_step_result r = {.struct_size = sizeof r};
    ampc_evaluation e = {.struct_size = sizeof e};
    const ampc_train_options o = {.struct_size = sizeof o, .data = train_data, .steps = 4, .batch = 4};
    h = open_file(model, &training);
    OK(h.c, ampc_tensor_create(h.c, "input_ids", AMPC_I64, 2, dims, ids, &h.in[0]));
    OK(h.c, ampc_tensor_create(h.c, "label", AMPC_I64, 1, dims + 3, label, &h.in[1]));
    expect_failure(ampc_train_step(h.s, h.in, 2, &r), AMPC_REJECTED, h.c,
                   "input 'label': axis 0 has size 23, but 8*N is 24");
    ampc_tensor_free(h.in[1]);
    OK(h.c, ampc_tensor_create(h.c, "label", AMPC_I64, 1, dims + 2, label, &h.in[1]));
    assert_true(train(&h, 60) < 2);
    OK(h.c, ampc_train(h.s, &o));
    OK(h.c, ampc_evaluate(h.s, test_data, 2, &e)); /* the labels of this file are flat */
    assert_int_equal(e.samples, 5);
    assert_true(e.loss > 0 && e.accuracy >= 0 && e.accuracy <= 1);
    OK(h.c, ampc_evaluate(h.s, "synthetic,rows=7", 3, &e));
    assert_int_equal(e.samples, 7);
    close_all(&h);
}

/* Trained weights survive export and import. */
TEST_SCRATCH(test_export)
{
    handles h = open_all(&training), again = {0};
    const char *path = scratch_path(t, "trained.onnx");
    ampc_tensor *w;
    train(&h, 5);
    OK(h.c, ampc_export_onnx(h.s, path));
    OK(h.c, ampc_session_get(h.s, "param/fc1.weight", &w));
    again = open_file(path, NULL);
    expect_equal(&again, "param/fc1.weight", w);
    ampc_tensor_free(w);
    close_all(&again);
    close_all(&h);
}

/* ---- placement ---- */

/* On a device with only launch costs, a soft white operator is not worth its casts. */
TEST(test_placement)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_compile_options o = {.struct_size = sizeof o, .placement = "mincut", .target = "gpu"};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    for (o.white_soft = 0; o.white_soft < 2; o.white_soft++) {
        OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
        OK(c, ampc_module_compile(m, &o));
        assert_true((strncmp(ampc_module_summary(m), "0/", 2) == 0) == (o.white_soft == 1));
        ampc_module_free(m);
    }
    o.placement = "best";
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    expect_failure(ampc_module_compile(m, &o), AMPC_USAGE, c, "placement 'best'");
    ampc_module_free(m);
    ampc_context_free(c);
}

/* A detector: the number of boxes is known after the run, and differs between images. */
TEST(test_sizes_of_results)
{
    static float pixels[3 * 64 * 64];
    static const int64_t dims[] = {1, 3, 64, 64};
    const ampc_compile_options o = {.struct_size = sizeof o, .amp = "O0"};
    ampc_tensor *image, *boxes, *scores;
    int64_t counts[3];
    handles h = open_file(AMPC_SOURCE_DIR "/tests/models/zoo/detector.onnx", &o);
    for (int run = 0; run < 3; run++) { /* the same image again in the last run */
        for (int i = 0; i < 3 * 64 * 64; i++) pixels[i] = run == 1 ? (float)(i * 37 % 19) / 2 - 4 : 0;
        OK(h.c, ampc_tensor_create(h.c, "x0", AMPC_F32, 4, dims, pixels, &image));
        OK(h.c, ampc_session_run(h.s, "infer", &image, 1));
        OK(h.c, ampc_session_get(h.s, "output/177", &boxes));
        OK(h.c, ampc_session_get(h.s, "output/178", &scores));
        counts[run] = ampc_tensor_dims(scores)[0];
        assert_int_equal(ampc_tensor_rank(boxes), 2);
        assert_int_equal(ampc_tensor_dims(boxes)[0], counts[run]);
        assert_int_equal(ampc_tensor_bytes(boxes), 16 * counts[run]);
        ampc_tensor_free(boxes);
        ampc_tensor_free(scores);
        ampc_tensor_free(image);
    }
    assert_int_equal(counts[0], counts[2]);
    assert_int_not_equal(counts[0], counts[1]);
    close_all(&h);
}
