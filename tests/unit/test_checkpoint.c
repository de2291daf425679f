/* test_checkpoint.c - contents of a checkpoint, errors for damaged files and those of other models, and the files
 * left after failures. */
#include "runtime/backend/alloc.h"
#include "runtime/files/io.h"
#include "runtime/files/safetensors.h"
#include "tests/unit/training.h"

#include <errno.h>
#include <sys/stat.h>

static const rt_run_state some_state = {.position = {7, 2, 3},
                                        .step = 12,
                                        .skipped = 4,
                                        .stuck = 1,
                                        .batch = 16,
                                        .rows = 96,
                                        .schedule = "constant,lr=0.1"};

static ir_module *module_of(scratch *t)
{
    compile_options o = training_options(IR_f16);
    return training_module(t, &o, 0);
}

/* A test of a session `s` of a module `m`. */
#define TEST_TRAINED(name) \
    static void name##_of(scratch *t, ir_module *m, rt_session *s); \
    TEST_SCRATCH(name) \
    { \
        ir_module *m = module_of(t); \
        rt_session *s = training_session(t, m); \
        name##_of(t, m, s); \
        rt_session_close(s); \
        ir_module_free(m); \
    } \
    static void name##_of(scratch *t, ir_module *m, rt_session *s)

/* Asserts that the session's parameters and states equal `bytes`. */
static void expect_bytes(rt_session *s, const char *bytes, size_t n)
{
    size_t have;
    char *now = training_bytes(s, &have);
    assert_int_equal(have, n);
    assert_memory_equal(now, bytes, n);
    free(now);
}

/* ---- keys and metadata ---- */

TEST(test_keys)
{
    static ir_storage weight = {.name = "fc.weight", .kind = IR_PARAM}, odd = {.name = "/enc/w:0", .kind = IR_PARAM};
    static const struct {
        ir_storage storage;
        const char *key;
    } rows[] = {
        {{.name = "fc.weight", .kind = IR_PARAM}, "param/fc.weight"},
        {{.name = "lr", .kind = IR_PARAM}, "param/lr"},
        {{.name = "a", .kind = IR_STATE, .role = IR_STATE_slot, .slot = "m", .of = &weight}, "opt/m/fc.weight"},
        {{.name = "b", .kind = IR_STATE, .role = IR_STATE_slot, .slot = "velocity", .of = &odd},
         "opt/velocity//enc/w:0"},
        {{.name = "opt.m.fc.weight", .kind = IR_STATE}, "buf/opt.m.fc.weight"},
        {{.name = "r", .kind = IR_STATE, .role = IR_STATE_rng}, "rng/state"},
        {{.name = "l", .kind = IR_STATE, .role = IR_STATE_lr}, "state/lr"},
        {{.name = "n", .kind = IR_STATE, .role = IR_STATE_step}, "state/step"},
        {{.name = "s", .kind = IR_STATE, .role = IR_STATE_loss_scale}, "state/loss_scale"},
        {{.name = "g", .kind = IR_STATE, .role = IR_STATE_good_steps}, "state/good_steps"},
        {{.name = "b", .kind = IR_STATE, .role = IR_STATE_bad_steps}, "state/bad_steps"},
        {{.name = "bn.mean", .kind = IR_STATE}, "buf/bn.mean"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *key = rt_checkpoint_key(&rows[i].storage);
        assert_string_equal(key, rows[i].key);
        free(key);
    }
}

TEST_TRAINED(test_contents)
{
    static const char *const keys[] = {
        "param/fc1.weight", "param/bn.scale",   "buf/bn.mean",     "buf/bn.var", "opt/m/fc2.weight",
        "opt/v/fc2.weight", "rng/state",        "data/position",   "state/lr",   "state/step",
        "state/loss_scale", "state/good_steps", "state/bad_steps",
    };
    static const char *const values[][2] = {
        {"version", "2"},    {"step", "12"},     {"epoch", "2"},    {"skipped", "4"},
        {"stuck", "1"},      {"batch", "16"},    {"rows", "96"},    {"schedule", "constant,lr=0.1"},
        {"good_steps", "0"}, {"bad_steps", "0"}, {"amp", "O1 f16"},
    };
    rt_safetensors *f;
    const char *path = scratch_path(t, "a.safetensors");
    assert_ok(t, rt_checkpoint_write(s, m, &some_state, path, t->d));
    assert_ok(t, rt_safetensors_open(path, RT_VERIFY_ALL, t->d, &f));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!rt_safetensors_find(f, keys[i])) fail_msg("no %s", keys[i]);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_string_equal(rt_safetensors_metadata(f, values[i][0]), values[i][1]);
    assert_true(strtod(rt_safetensors_metadata(f, "loss_scale"), NULL) > 1);
    assert_int_equal(strlen(rt_safetensors_metadata(f, "model")), 32);
    rt_safetensors_close(f);
}

TEST_TRAINED(test_round_trip)
{
    rt_run_state run;
    size_t n;
    const char *path = scratch_path(t, "a.safetensors");
    training_scramble(s, 0);
    char *before = training_bytes(s, &n);
    assert_ok(t, rt_checkpoint_write(s, m, &some_state, path, t->d));
    training_scramble(s, 0x55);
    assert_ok(t, rt_checkpoint_read(s, m, path, &rt_checkpoint_all, t->d, &run));
    expect_bytes(s, before, n);
    assert_int_equal(run.position.seed, 7);
    assert_int_equal(run.position.epoch, 2);
    assert_int_equal(run.position.batch, 3);
    assert_int_equal(run.step, 12);
    assert_int_equal(run.skipped, 4);
    assert_int_equal(run.stuck, 1);
    assert_int_equal(run.batch, 16);
    assert_int_equal(run.rows, 96);
    assert_string_equal(run.schedule, some_state.schedule);
    free(before);
}

/* ---- damaged files and checkpoints of other models ---- */

TEST_TRAINED(test_damage)
{
    size_t n, size;
    assert_ok(t, rt_checkpoint_write(s, m, &some_state, scratch_path(t, "a.safetensors"), t->d));
    char *file = scratch_read(t, "a.safetensors", &size), *before;
    training_scramble(s, 0x11);
    before = training_bytes(s, &n);
    for (size_t at = 0; at < size; at += 1 + size / 97) {
        file[at] = (char)(file[at] ^ 4);
        scratch_write(t, "b.safetensors", file, size);
        ampc_status status = rt_checkpoint_read(s, m, scratch_path(t, "b.safetensors"), &rt_checkpoint_all, t->d, NULL);
        file[at] = (char)(file[at] ^ 4);
        assert_int_equal(status, AMPC_REJECTED);
        scratch_expect(t, "b.safetensors");
    }
    for (size_t length = 0; length < size; length += 1 + size / 31) {
        scratch_write(t, "b.safetensors", file, length);
        assert_int_equal(rt_checkpoint_read(s, m, scratch_path(t, "b.safetensors"), &rt_checkpoint_weights, t->d, NULL),
                         AMPC_REJECTED);
        scratch_expect(t, "b.safetensors");
    }
    assert_int_equal(rt_checkpoint_read(s, m, scratch_path(t, "none"), &rt_checkpoint_all, t->d, NULL), AMPC_IO);
    expect_bytes(s, before, n);
    free(before);
    free(file);
}

TEST_TRAINED(test_other_model)
{
    const char *path = scratch_path(t, "a.safetensors");
    assert_ok(t, rt_checkpoint_write(s, m, &some_state, path, t->d));
    compile_options o = training_options(IR_bf16);
    o.optimizer = "momentum,lr=0.1";
    ir_module *other = training_module(t, &o, 0);
    rt_session *session = training_session(t, other);
    training_scramble(session, 0x11);
    size_t n;
    char *before = training_bytes(session, &n);
    assert_int_equal(rt_checkpoint_read(session, other, path, &rt_checkpoint_all, t->d, NULL), AMPC_REJECTED);
    scratch_expect(t, "another optimizer");
    expect_bytes(session, before, n);
    assert_ok(t, rt_checkpoint_read(session, other, path, &rt_checkpoint_weights, t->d, NULL));
    rt_tensor a = training_storage(t, s, "fc1.weight"), b = training_storage(t, session, "fc1.weight");
    assert_memory_equal(a.data, b.data, 4 * 8 * 4);
    a = training_storage(t, s, "bn.var"), b = training_storage(t, session, "bn.var");
    assert_memory_equal(a.data, b.data, 8 * 4);
    b = training_storage(t, session, "lr");
    assert_memory_equal(b.data, "\x11\x11\x11\x11", 4);
    free(before);
    rt_session_close(session);
    ir_module_free(other);
}

/* A file with valid hashes whose tensors do not match the model. */
TEST_TRAINED(test_missing_and_misshapen)
{
    rt_safetensors_writer *w;
    const float zeros[64] = {0};
    const char *path = scratch_path(t, "a.safetensors");
    assert_ok(t, rt_safetensors_create(t->d, &w));
    assert_ok(t, rt_safetensors_put_metadata(w, "version", "2"));
    assert_ok(t, rt_safetensors_add(w, "param/fc1.weight", IR_f32, 2, (int64_t[]){8, 4}, zeros));
    assert_ok(t, rt_safetensors_commit(w, path, NULL));
    training_scramble(s, 0x22);
    size_t n;
    char *before = training_bytes(s, &n);
    assert_int_equal(rt_checkpoint_read(s, m, path, &rt_checkpoint_weights, t->d, NULL), AMPC_REJECTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 8); /* seven are missing, one has a different shape */
    diag_clear(t->d);
    expect_bytes(s, before, n);
    assert_ok(t, rt_safetensors_create(t->d, &w));
    assert_ok(t, rt_safetensors_put_metadata(w, "version", "99"));
    assert_ok(t, rt_safetensors_commit(w, path, NULL));
    assert_int_equal(rt_checkpoint_read(s, m, path, &rt_checkpoint_weights, t->d, NULL), AMPC_REJECTED);
    scratch_expect(t, "unknown version 99");
    free(before);
}

/* ---- failing calls ---- */

TEST_TRAINED(test_allocation_failures)
{
    const char *path = scratch_path(t, "a.safetensors");
    size_t n;
    assert_ok(t, rt_checkpoint_write(s, m, &some_state, path, t->d));
    training_scramble(s, 0x33);
    char *before = training_bytes(s, &n);
    for (uint64_t fail = 1;; fail++) {
        diag_clear(t->d);
        rt_alloc_fail(fail);
        ampc_status status = rt_checkpoint_read(s, m, path, &rt_checkpoint_all, t->d, NULL);
        rt_alloc_fail(0);
        if (status == AMPC_OK) {
            assert_true(fail > 5);
            break;
        }
        assert_int_equal(status, AMPC_NO_MEMORY);
        expect_bytes(s, before, n);
    }
    free(before);
}

TEST_TRAINED(test_io_failures)
{
    rt_run_state run = some_state;
    assert_ok(t, rt_checkpoint_put(s, m, &run, t->folder, 2, t->d));
    const char *old = scratch_path(t, "ckpt-0000000012.safetensors");
    run.step = 24;
    for (uint64_t fail = 1;; fail++) {
        diag_clear(t->d);
        rt_io_fail(fail, ENOSPC, false);
        ampc_status status = rt_checkpoint_put(s, m, &run, t->folder, 2, t->d);
        rt_io_fail(0, 0, false);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_IO);
        diag_clear(t->d);
        assert_ok(t, rt_checkpoint_read(s, m, old, &rt_checkpoint_all, t->d, NULL));
        assert_true(scratch_count(t) <= 2); /* no temporary file is left */
        remove(scratch_path(t, "ckpt-0000000024.safetensors"));
    }
}

/* ---- folders ---- */

static void put(scratch *t, rt_session *s, const ir_module *m, uint64_t step)
{
    rt_run_state run = some_state;
    run.step = step;
    assert_ok(t, rt_checkpoint_put(s, m, &run, t->folder, 0, t->d));
}

TEST_TRAINED(test_generations)
{
    char *path;
    scratch_write(t, ".ckpt-0000000005.safetensors.1-1.ampc-tmp", "dead", 4);
    scratch_write(t, "ckpt-5.safetensors", "not ours", 8);
    assert_ok(t, rt_checkpoint_folder(t->folder, t->d));
    assert_int_equal(scratch_count(t), 1);
    assert_ok(t, rt_checkpoint_newest(t->folder, t->d, &path));
    assert_null(path);
    for (uint64_t step = 5; step <= 20; step += 5) put(t, s, m, step);
    assert_int_equal(scratch_count(t), 3);
    assert_int_equal(access(scratch_path(t, "ckpt-0000000015.safetensors"), F_OK), 0);
    assert_ok(t, rt_checkpoint_newest(t->folder, t->d, &path));
    assert_string_equal(path, scratch_path(t, "ckpt-0000000020.safetensors"));
    free(path);
    assert_int_equal(rt_checkpoint_folder(scratch_path(t, "ckpt-5.safetensors"), t->d), AMPC_IO);
    scratch_expect(t, "not a folder");
}

TEST_TRAINED(test_fallback)
{
    rt_run_state run;
    char *path;
    size_t size;
    assert_ok(t, rt_checkpoint_resume(s, m, t->folder, &rt_checkpoint_all, false, t->d, &run, &path));
    assert_null(path);
    put(t, s, m, 5);
    put(t, s, m, 10);
    char *file = scratch_read(t, "ckpt-0000000010.safetensors", &size);
    file[size - 1] = (char)~file[size - 1];
    scratch_write(t, "ckpt-0000000010.safetensors", file, size);
    assert_int_equal(rt_checkpoint_resume(s, m, t->folder, &rt_checkpoint_all, false, t->d, &run, &path),
                     AMPC_REJECTED);
    assert_null(path);
    scratch_expect(t, "ckpt-0000000005.safetensors");
    assert_ok(t, rt_checkpoint_resume(s, m, t->folder, &rt_checkpoint_all, true, t->d, &run, &path));
    assert_string_equal(path, scratch_path(t, "ckpt-0000000005.safetensors"));
    assert_int_equal(run.step, 5);
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1);
    assert_int_equal(access(scratch_path(t, "ckpt-0000000010.safetensors.damaged"), F_OK), 0);
    free(path);
    scratch_write(t, "ckpt-0000000005.safetensors", file, size / 2);
    diag_clear(t->d);
    assert_int_equal(rt_checkpoint_resume(s, m, t->folder, &rt_checkpoint_all, true, t->d, &run, &path), AMPC_REJECTED);
    scratch_expect(t, "no older checkpoint");
    free(file);
}

/* System errors damage nothing: whichever call fails, both files keep their names, and the next attempt succeeds. */
TEST_TRAINED(test_trouble_is_no_damage)
{
    static const int errors[] = {EMFILE, EIO, EACCES};
    rt_run_state run;
    char *path;
    put(t, s, m, 5);
    put(t, s, m, 10);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (uint64_t fail = 1;; fail++) {
            diag_clear(t->d);
            rt_io_fail(fail, errors[i], i == 1);
            ampc_status status = rt_checkpoint_resume(s, m, t->folder, &rt_checkpoint_all, true, t->d, &run, &path);
            rt_io_fail(0, 0, false);
            assert_int_equal(scratch_count(t), 2);
            assert_int_equal(access(scratch_path(t, "ckpt-0000000010.safetensors"), F_OK), 0);
            if (status == AMPC_OK) {
                assert_true(fail > 4);
                assert_int_equal(run.step, 10);
                free(path);
                break;
            }
            assert_int_equal(status, AMPC_IO);
            scratch_expect(t, strerror(errors[i]));
        }
}
