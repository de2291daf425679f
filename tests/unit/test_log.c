/* test_log.c - the step log of killed and resumed runs, and the lock of their folder. */
#include "runtime/files/folder_lock.h"
#include "runtime/train/log.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- the log ---- */

/* Runs with checkpoints in `folder`, resuming after step `from` and logging up to step `to`. */
static void run(scratch *t, const char *folder, uint64_t from, uint64_t to)
{
    const rt_log_resume resume = {folder, from};
    rt_log *log;
    assert_int_equal(rt_log_open(scratch_path(t, "log"), NULL, 0, &resume, t->d, &log), AMPC_OK);
    for (uint64_t i = from == RT_LOG_NOT_RESUMED ? 1 : from + 1; i <= to; i++)
        assert_int_equal(rt_log_step(log, &(rt_step_record){.step = i, .loss = 0.1}), AMPC_OK);
    assert_int_equal(rt_log_sync(log), AMPC_OK);
    assert_int_equal(rt_log_close(log), AMPC_OK);
}

static void append(scratch *t, const char *text)
{
    FILE *f = fopen(scratch_path(t, "log"), "ab");
    fputs(text, f);
    fclose(f);
}

/* Summary of the lines: "a" a header of folder a, step numbers, "?" anything else. */
static void expect_lines(scratch *t, const char *expected)
{
    char line[512], text[400] = "";
    size_t n = 0;
    unsigned step;
    FILE *f = fopen(scratch_path(t, "log"), "r");
    while (fgets(line, sizeof line, f)) {
        char folder;
        bool whole = strchr(line, '\n') != NULL;
        if (whole && sscanf(line, "{\"run\":{\"checkpoints\":\"%c", &folder) == 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%c ", folder);
        else if (whole && sscanf(line, "{\"step\":%u,", &step) == 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%u ", step);
        else n += (size_t)snprintf(text + n, sizeof text - n, "? ");
    }
    fclose(f);
    assert_string_equal(text, expected);
}

TEST_SCRATCH(test_cut_back)
{
    run(t, "a", RT_LOG_NOT_RESUMED, 6);
    run(t, "a", 4, 5);
    expect_lines(t, "a 1 2 3 4 a 5 ");
    append(t, "{\"step\":6,\"epo");
    run(t, "a", 5, 7);
    expect_lines(t, "a 1 2 3 4 a 5 a 6 7 ");
    run(t, "a", 4, 5); /* resumed from an older checkpoint: removes runs without an earlier step */
    expect_lines(t, "a 1 2 3 4 a 5 ");
    run(t, "a", 5, 5); /* killed before a step */
    run(t, "a", 5, 6);
    expect_lines(t, "a 1 2 3 4 a 5 a 6 ");
}

TEST_SCRATCH(test_cut_to_the_beginning)
{
    run(t, "a", 0, 3); /* --resume, but no checkpoint yet */
    run(t, "a", 0, 2);
    expect_lines(t, "a 1 2 ");
    run(t, "a", RT_LOG_NOT_RESUMED, 1); /* a new run removes nothing */
    expect_lines(t, "a 1 2 a 1 ");
}

TEST_SCRATCH(test_lines_of_others_stay)
{
    run(t, "b", RT_LOG_NOT_RESUMED, 9);
    run(t, "a", 0, 3);
    run(t, "a", 2, 4);
    expect_lines(t, "b 1 2 3 4 5 6 7 8 9 a 1 2 a 3 4 ");
    append(t, "not ours\n");
    run(t, "b", 8, 10);
    expect_lines(t, "b 1 2 3 4 5 6 7 8 9 a 1 2 a 3 4 ? b 9 10 ");
    run(t, "a", 3, 4);
    expect_lines(t, "b 1 2 3 4 5 6 7 8 9 a 1 2 a 3 4 ? b 9 10 a 4 ");
}

/* Evaluations are removed with the steps after which they were made, and readers of steps skip them. */
TEST_SCRATCH(test_evaluations)
{
    const rt_eval eval = {.count = 2, .value = {{.name = "loss", .value = 0.5}, {.name = "auc", .value = NAN}}};
    rt_log *log;
    rt_step_record *steps = NULL;
    size_t count = 0;
    run(t, "a", RT_LOG_NOT_RESUMED, 2);
    for (uint64_t step = 2; step <= 4; step++) {
        assert_int_equal(rt_log_open(scratch_path(t, "log"), NULL, 0, &(rt_log_resume){"a", step}, t->d, &log),
                         AMPC_OK);
        assert_int_equal(rt_log_eval(log, step, &eval), AMPC_OK);
        assert_int_equal(rt_log_step(log, &(rt_step_record){.step = step + 1}), AMPC_OK);
        assert_int_equal(rt_log_close(log), AMPC_OK);
    }
    expect_lines(t, "a 1 2 a ? 3 a ? 4 a ? 5 ");
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &steps, &count), AMPC_OK);
    assert_int_equal(count, 5);
    assert_int_equal(steps[4].step, 5);
    free(steps);
    run(t, "a", 3, 4);
    expect_lines(t, "a 1 2 a ? 3 a ? a 4 ");
    run(t, "a", 2, 3);
    expect_lines(t, "a 1 2 a ? a 3 ");
}

/* ---- the lock ---- */

TEST_SCRATCH(test_second_is_refused)
{
    int ready[2];
    char c, owner[64];
    rt_folder_lock lock = RT_NO_FOLDER_LOCK;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool acquired = rt_folder_lock_acquire(t->folder, t->d, &lock) == AMPC_OK;
        if (write(ready[1], acquired ? "y" : "n", 1) == 1) pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_int_equal(rt_folder_lock_acquire(t->folder, t->d, &lock), AMPC_USAGE);
    snprintf(owner, sizeof owner, "(process %ld on ", (long)child);
    scratch_expect(t, owner);
    rt_folder_lock_release(&lock);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(rt_folder_lock_acquire(t->folder, t->d, &lock), AMPC_OK);
    rt_folder_lock other = RT_NO_FOLDER_LOCK;
    assert_int_equal(rt_folder_lock_acquire(t->folder, t->d, &other), AMPC_USAGE); /* within one process too */
    rt_folder_lock_release(&lock);
    assert_int_equal(scratch_count(t), 0);
    assert_int_equal(rt_folder_lock_acquire(scratch_path(t, "absent"), t->d, &lock), AMPC_IO);
    close(ready[0]);
    close(ready[1]);
}
