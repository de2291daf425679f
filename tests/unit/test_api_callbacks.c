/* test_api_callbacks.c - calls of ampc.h from the progress callback and from the log callback. */
#include "tests/unit/api_fixture.h"

typedef struct caller {
    fixture *f;
    int calls;
} caller;

static int call_from_progress(void *user, const ampc_step_result *step)
{
    caller *k = user;
    fixture *f = k->f;
    ampc_train_options again = {.struct_size = sizeof again, .data = "synthetic", .steps = 1, .batch = 4};
    ampc_evaluation e = {.struct_size = sizeof e};
    double v;
    (void)step;
    k->calls++;
    ampc_session_free(f->s); /* rejected, since it is used below */
    assert_non_null(strstr(ampc_context_message(f->c), "cannot be freed"));
    expect_failure(ampc_train(f->s, &again), AMPC_USAGE, f->c, "ampc_train runs");
    expect_failure(ampc_train_step(f->s, f->in, 2, NULL), AMPC_USAGE, f->c, "ampc_train runs");
    expect_failure(ampc_session_run(f->s, "train_step", f->in, 2), AMPC_USAGE, f->c, "ampc_train runs");
    expect_failure(ampc_select(f->s, "infer", NULL, 0), AMPC_USAGE, f->c, "ampc_train runs");
    expect_failure(ampc_checkpoint_load(f->s, f->path, NULL), AMPC_USAGE, f->c, "ampc_train runs");
    expect_failure(ampc_checkpoint_load_weights(f->s, f->path), AMPC_USAGE, f->c, "ampc_train runs");
    assert_int_equal(ampc_eval_step(f->s, f->in, 2, &v), AMPC_OK);
    assert_int_equal(ampc_evaluate(f->s, "synthetic,rows=8", 4, &e), AMPC_OK);
    assert_int_equal(ampc_checkpoint_save(f->s, f->path, NULL), AMPC_OK);
    assert_int_equal(ampc_session_get_number(f->s, "state/lr", &v), AMPC_OK);
    return 0;
}

TEST_API(test_progress_callback)
{
    caller k = {f, 0};
    ampc_train_options o = {.struct_size = sizeof o,
                            .data = "synthetic",
                            .steps = 3,
                            .batch = 4,
                            .progress = call_from_progress,
                            .user = &k};
    double step;
    assert_int_equal(ampc_train(f->s, &o), AMPC_OK);
    assert_string_equal(ampc_context_message(f->c), "");
    assert_int_equal(k.calls, 3);
    assert_int_equal(ampc_session_get_number(f->s, "state/step", &step), AMPC_OK);
    assert_int_equal(ampc_train_step(f->s, f->in, 2, NULL), AMPC_OK);
}

typedef struct listener {
    ampc_context *c;
    ampc_module *m;
    int messages;
} listener;

static void call_from_log(void *user, ampc_log_level level, const char *message)
{
    listener *l = user;
    ampc_module *m = NULL;
    (void)level;
    (void)message;
    l->messages++;
    assert_int_equal(ampc_module_import(l->c, MLP, NULL, 0, &m), AMPC_USAGE);
    ampc_module_free(l->m); /* rejected */
    ampc_context_free(l->c);
    ampc_context_message(l->c);
}

TEST(test_log_callback)
{
    listener l = {0};
    const ampc_context_options o = {.struct_size = sizeof o, .log = call_from_log, .user = &l};
    const ampc_compile_options wrong = {.struct_size = sizeof wrong, .loss = "hinge"};
    assert_int_equal(ampc_context_create(&o, &l.c), AMPC_OK);
    assert_int_equal(ampc_module_import(l.c, MLP, NULL, 0, &l.m), AMPC_OK);
    assert_int_equal(ampc_module_compile(l.m, &wrong), AMPC_USAGE);
    assert_true(l.messages > 0);
    ampc_module_free(l.m);
    ampc_context_free(l.c);
}
