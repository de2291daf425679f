/* test_replicas.c - a training on several ranks, which are threads here: shares, stops, failures, checkpoints. */
#include "runtime/train/team.h"
#include "tests/ranks_threads.h"
#include "tests/unit/training.h"

enum { ROWS = 90, BATCH = 10, STEPS = 12, RANKS = 3, NOBODY = -1 };

typedef struct rank_run {
    ampc_status status;
    uint64_t step, skipped;
    double share;
    bool repeats;
    char error[512], *bytes;
    size_t n;
} rank_run;

/* What a run of all ranks does. */
typedef struct replicas {
    const ir_module *m;
    const char *spec, *folder;
    bool resume;
    int64_t batch;
    int stopping, failing, seeded; /* ranks that stop after step 5, lack their data, have another seed */
    rank_run runs[RANKS];
} replicas;

static volatile sig_atomic_t stop_flag;

static bool stop_at_5(void *user, const rt_step_record *step)
{
    (void)user;
    if (step->step == 5) stop_flag = 1;
    return false;
}

static bool give_up_at_5(void *user, const rt_step_record *step)
{
    (void)user;
    return step->step == 5;
}

static ampc_status train(const replicas *all, k_ranks *r, rt_team *peers, diag *d, rank_run *out)
{
    rt_session *s = NULL;
    rt_dataset *data = NULL;
    rt_trainer *trainer = NULL;
    const rt_session_options session = {.device = "cpu", .threads = 1, .deterministic = 1, .ranks = r};
    const rt_dataset_options opened = {0};
    const rt_trainer_options o = {
        .batch = all->batch, .steps = STEPS, .lr = -1, .seed = r->index == all->seeded ? 4 : 3, .peers = peers};
    const rt_train_plan plan = {.checkpoint_dir = all->folder && r->index ? "/nowhere" : all->folder,
                                .keep = 2,
                                .resume = all->resume,
                                .stop = r->index == all->stopping ? &stop_flag : NULL,
                                .on_step = r->index == all->stopping  ? stop_at_5
                                           : r->index == all->failing ? give_up_at_5
                                                                      : NULL};
    ampc_status status = rt_session_open(all->m, &session, d, &s);
    if (status == AMPC_OK) status = rt_dataset_open(all->spec, &opened, d, &data);
    if (status == AMPC_OK) status = rt_trainer_open(s, all->m, data, &o, d, &trainer);
    if (status == AMPC_OK) status = rt_trainer_run(trainer, &plan, d);
    if (status == AMPC_OK && r->index == all->failing) status = diag_error(d, AMPC_IO, DIAG_NOWHERE, "the log is full");
    if (trainer) out->step = rt_trainer_state(trainer)->step;
    if (status == AMPC_OK) out->bytes = training_bytes(s, &out->n);
    rt_trainer_close(trainer);
    rt_dataset_close(data);
    rt_session_close(s);
    return status;
}

static void run_rank(k_ranks *r, void *user)
{
    replicas *all = user;
    rank_run *out = &all->runs[r->index];
    diag *d = diag_new(NULL, NULL);
    rt_team *peers = NULL;
    out->status = rt_team_open(r, d, &peers);
    if (out->status == AMPC_OK) out->status = train(all, r, peers, d, out);
    out->status = rt_team_agree(peers, out->status, NULL, d);
    out->repeats = rt_team_repeats(peers);
    if (peers) out->share = rt_team_ranks(peers)->share;
    snprintf(out->error, sizeof out->error, "%s", diag_first_error(d));
    rt_team_close(peers);
    diag_free(d);
}

static replicas run_all(scratch *t, const ir_module *m, replicas all)
{
    ranks_threads *threads = ranks_threads_new(RANKS, NULL);
    char *spec;
    rt_dataset_close(training_data(t, ROWS));
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", scratch_path(t, "x.npy"), scratch_path(t, "label.npy")) > 0);
    all.m = m;
    all.spec = spec;
    if (!all.batch) all.batch = BATCH;
    stop_flag = 0;
    ranks_threads_run(threads, run_rank, &all);
    ranks_threads_free(threads);
    free(spec);
    return all;
}

static void clear(replicas *all)
{
    for (int i = 0; i < RANKS; i++) free(all->runs[i].bytes);
}

static ir_module *make_module(scratch *t)
{
    compile_options o = training_options(IR_f16);
    return training_module(t, &o, 0);
}

TEST_SCRATCH(test_stop_of_one_rank)
{
    ir_module *m = make_module(t);
    replicas all = run_all(t, m, (replicas){.folder = t->folder, .stopping = 1, .failing = NOBODY, .seeded = NOBODY});
    for (int i = 0; i < RANKS; i++) {
        if (all.runs[i].status != AMPC_OK) fail_msg("rank %d: %s", i, all.runs[i].error);
        assert_int_equal(all.runs[i].step, 5);
        assert_int_equal((int)(all.runs[i].share * BATCH + 0.5), i ? 3 : 4);
    }
    assert_int_equal(access(scratch_path(t, "ckpt-0000000005.safetensors"), F_OK), 0);
    clear(&all);
    /* All ranks go on with the state that the first one reads. */
    all = run_all(t, m,
                  (replicas){.folder = t->folder, .resume = true, .stopping = 2, .failing = NOBODY, .seeded = NOBODY});
    for (int i = 0; i < RANKS; i++) {
        if (all.runs[i].status != AMPC_OK) fail_msg("rank %d: %s", i, all.runs[i].error);
        assert_int_equal(all.runs[i].step, STEPS);
    }
    clear(&all);
    ir_module_free(m);
}

TEST_SCRATCH(test_failure_of_one_rank)
{
    ir_module *m = make_module(t);
    for (int rank = 0; rank < RANKS; rank++) {
        char expected[64];
        replicas all = run_all(t, m, (replicas){.stopping = NOBODY, .failing = rank, .seeded = NOBODY});
        snprintf(expected, sizeof expected, "rank %d on ", rank);
        for (int i = 0; i < RANKS; i++) {
            assert_int_equal(all.runs[i].status, i == rank ? AMPC_IO : AMPC_DEVICE);
            assert_non_null(strstr(all.runs[i].error, i == rank ? "the log is full" : expected));
            assert_int_equal(all.runs[i].repeats, i > 0 && i != rank);
        }
        clear(&all);
    }
    ir_module_free(m);
}

TEST_SCRATCH(test_ranks_that_differ)
{
    ir_module *m = make_module(t);
    replicas all = run_all(t, m, (replicas){.stopping = NOBODY, .failing = NOBODY, .seeded = 2});
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(all.runs[i].status, AMPC_USAGE);
        assert_non_null(strstr(all.runs[i].error, "the ranks differ: the hash of the first samples of 'x' is "));
        assert_non_null(strstr(all.runs[i].error, " on rank 2 ("));
        assert_int_equal(all.runs[i].repeats, i > 0);
    }
    clear(&all);
    all = run_all(t, m, (replicas){.stopping = NOBODY, .failing = NOBODY, .seeded = NOBODY, .batch = 2});
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(all.runs[i].status, AMPC_USAGE);
        assert_non_null(strstr(all.runs[i].error, "a batch of 2 has fewer samples than there are ranks: 3"));
    }
    clear(&all);
    ir_module_free(m);
}

/* The resumed run ends bitwise with the slices, and all else, of one that was never stopped. */
TEST_SCRATCH(test_slices_of_a_checkpoint)
{
    compile_options o = training_options(IR_f16);
    o.distribute = true;
    o.shard = PASS_SHARD_OPTIMIZER;
    o.ranks = RANKS;
    ir_module *m = training_module(t, &o, 0);
    const replicas plan = {.stopping = NOBODY, .failing = NOBODY, .seeded = NOBODY};
    replicas whole = run_all(t, m, plan), stopped = plan, resumed = plan;
    stopped.folder = resumed.folder = t->folder;
    stopped.stopping = 1;
    resumed.resume = true;
    stopped = run_all(t, m, stopped);
    resumed = run_all(t, m, resumed);
    for (int i = 0; i < RANKS; i++) {
        if (whole.runs[i].status != AMPC_OK) fail_msg("rank %d: %s", i, whole.runs[i].error);
        if (resumed.runs[i].status != AMPC_OK) fail_msg("rank %d: %s", i, resumed.runs[i].error);
        assert_int_equal(stopped.runs[i].step, 5);
        assert_int_equal(resumed.runs[i].n, whole.runs[i].n);
        assert_memory_equal(resumed.runs[i].bytes, whole.runs[i].bytes, whole.runs[i].n);
    }
    clear(&whole);
    clear(&stopped);
    clear(&resumed);
    ir_module_free(m);
}
