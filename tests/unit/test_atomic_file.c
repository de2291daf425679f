/* test_atomic_file.c - the write protocol with each system call failing, once and permanently. */
#include "runtime/files/atomic_file.h"
#include "runtime/files/io.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

static char block[100000];

static ampc_status expect_size(void *user, int fd, const char *path, diag *d)
{
    struct stat st;
    (void)user;
    if (fstat(fd, &st) == 0 && st.st_size == sizeof block + 8) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "another size");
}

static ampc_status write_new(scratch *t, const char *path)
{
    rt_atomic_file *f;
    TRY(rt_atomic_open(path, t->d, &f));
    rt_atomic_check_with(f, expect_size, NULL);
    ampc_status s = rt_atomic_write(f, "new ", 4);
    if (s == AMPC_OK) s = rt_atomic_write(f, block, sizeof block);
    if (s == AMPC_OK) s = rt_atomic_write(f, "tail", 4);
    if (s == AMPC_OK) s = rt_atomic_rewrite(f, 1, "EW", 2);
    if (s == AMPC_OK) return rt_atomic_commit(f);
    rt_atomic_abort(f);
    return s;
}

static void expect_new(scratch *t)
{
    size_t n;
    char *text = scratch_read(t, "file", &n);
    assert_int_equal(n, sizeof block + 8);
    assert_memory_equal(text, "nEW ", 4);
    assert_memory_equal(text + 4, block, sizeof block);
    assert_string_equal(text + n - 4, "tail");
    free(text);
}

static void expect_old_or_new(scratch *t, bool old)
{
    size_t n;
    char *text = scratch_read(t, "file", &n);
    if (old) assert_string_equal(text, "old");
    free(text);
    if (!old) expect_new(t);
    assert_int_equal(scratch_count(t), 1); /* no temporary file left */
}

static void fail_each_call(scratch *t, int error, bool persistent)
{
    const char *path = scratch_path(t, "file");
    rt_io_fail(0, 0, false);
    assert_int_equal(write_new(t, path), AMPC_OK);
    uint64_t calls = rt_io_calls();
    bool flushes = false;
    assert_true(calls >= 8); /* open, 3 writes, fsync, close, rename, folder */
    for (uint64_t k = 1; k <= calls; k++) {
        scratch_write(t, "file", "old", 3);
        rt_io_fail(k, error, persistent);
        ampc_status s = write_new(t, path);
        rt_io_fail(0, 0, false);
        /* The last three calls open, sync and close the folder, when the file is already complete. */
        expect_old_or_new(t, k <= calls - 3);
        flushes |= strstr(diag_first_error(t->d), "cannot flush it to disk") != NULL;
        if (s != AMPC_OK) scratch_expect(t, strerror(error));
        else assert_int_equal(k, calls);
    }
    assert_true(flushes); /* a failure to do so leaves the old file */
}

TEST_SCRATCH(test_one_failing_call) { fail_each_call(t, ENOSPC, false); }
TEST_SCRATCH(test_failing_from_a_call_on) { fail_each_call(t, EIO, true); }

TEST_SCRATCH(test_new_file)
{
    assert_int_equal(write_new(t, scratch_path(t, "file")), AMPC_OK);
    expect_old_or_new(t, false);
    rt_atomic_abort(NULL);
}

TEST_SCRATCH(test_abort_leaves_nothing)
{
    rt_atomic_file *f;
    assert_int_equal(rt_atomic_open(scratch_path(t, "file"), t->d, &f), AMPC_OK);
    assert_int_equal(rt_atomic_write(f, block, sizeof block), AMPC_OK);
    assert_int_equal(rt_atomic_tell(f), sizeof block);
    assert_int_equal(scratch_count(t), 1);
    rt_atomic_abort(f);
    assert_int_equal(scratch_count(t), 0);
}

/* Modifies the only temporary file in the folder. */
static void damage_temporary(scratch *t, int64_t cut)
{
    DIR *dir = opendir(t->folder);
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".ampc-tmp")) continue;
        int fd = open(scratch_path(t, e->d_name), O_RDWR);
        if (cut) assert_int_equal(ftruncate(fd, cut), 0);
        else assert_int_equal(pwrite(fd, "!", 1, 70000), 1);
        close(fd);
    }
    closedir(dir);
}

/* Damage by a disk or another process is detected before the good file is replaced. */
TEST_SCRATCH(test_reads_back)
{
    for (int64_t cut = 0; cut <= 20000; cut += 20000) {
        rt_atomic_file *f;
        scratch_write(t, "file", "old", 3);
        assert_int_equal(rt_atomic_open(scratch_path(t, "file"), t->d, &f), AMPC_OK);
        assert_int_equal(rt_atomic_write(f, block, sizeof block), AMPC_OK);
        damage_temporary(t, cut);
        assert_int_equal(rt_atomic_write(f, "tail", 4), AMPC_OK);
        assert_int_equal(rt_atomic_commit(f), AMPC_IO);
        scratch_expect(t, "verification of the written data failed");
        expect_old_or_new(t, true);
    }
}

static ampc_status refuse_all(void *user, int fd, const char *path, diag *d)
{
    (void)fd;
    return diag_error(d, *(ampc_status *)user, DIAG_FILE(path), "not what was meant");
}

TEST_SCRATCH(test_own_check)
{
    ampc_status codes[] = {AMPC_REJECTED, AMPC_IO, AMPC_NO_MEMORY}, status[] = {AMPC_IO, AMPC_IO, AMPC_NO_MEMORY};
    for (int i = 0; i < 3; i++) {
        rt_atomic_file *f;
        scratch_write(t, "file", "old", 3);
        assert_int_equal(rt_atomic_open(scratch_path(t, "file"), t->d, &f), AMPC_OK);
        rt_atomic_check_with(f, refuse_all, &codes[i]);
        assert_int_equal(rt_atomic_write(f, block, sizeof block), AMPC_OK);
        assert_int_equal(rt_atomic_commit(f), status[i]);
        scratch_expect(t, status[i] == AMPC_IO ? "not what was meant" : "out of memory");
        expect_old_or_new(t, true);
    }
}

static rt_atomic_file *begin_new(scratch *t, const char *name)
{
    rt_atomic_file *f;
    scratch_write(t, name, "old", 3);
    assert_int_equal(rt_atomic_open(scratch_path(t, name), t->d, &f), AMPC_OK);
    assert_int_equal(rt_atomic_write(f, "new", 3), AMPC_OK);
    return f;
}

/* Either both are old or both are new, whichever call fails. The first is put into place first, so that a process killed
 * between the two leaves only that one. */
TEST_SCRATCH(test_two_files)
{
    int renamed = 0;
    for (uint64_t k = 1;; k++) {
        rt_atomic_file *a = begin_new(t, "a"), *b = begin_new(t, "b");
        rt_io_fail(k, EIO, false);
        ampc_status s = rt_atomic_commit_both(a, b);
        rt_io_fail(0, 0, false);
        size_t n;
        char *first = scratch_read(t, "a", &n), *second = scratch_read(t, "b", &n);
        assert_string_equal(first, second);
        if (s == AMPC_OK) assert_string_equal(first, "new");
        free(first);
        free(second);
        assert_int_equal(scratch_count(t), 2);
        if (s == AMPC_OK) {
            assert_true(k > 10);
            break;
        }
        if (strstr(diag_first_error(t->d), "cannot rename")) scratch_expect(t, renamed++ ? "/b: " : "/a: ");
        else scratch_expect(t, strerror(EIO));
    }
    assert_int_equal(renamed, 2);
}

TEST_SCRATCH(test_impossible_targets)
{
    assert_int_equal(rt_atomic_save(scratch_path(t, "no/such/folder"), "x", 1, t->d), AMPC_IO);
    scratch_expect(t, "no/such/folder");
    assert_int_equal(rt_atomic_save(t->folder, "x", 1, t->d), AMPC_IO);
}

TEST_SCRATCH(test_devices_are_written_directly)
{
    struct stat st;
    assert_int_equal(rt_atomic_save("/dev/null", "x", 1, t->d), AMPC_OK);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(rt_atomic_save("/dev/full", "x", 1, t->d), AMPC_IO);
    scratch_expect(t, "No space left");
}

TEST_SCRATCH(test_links_are_followed)
{
    struct stat st;
    scratch_write(t, "file", "old", 3);
    assert_int_equal(symlink("file", scratch_path(t, "link")), 0);
    assert_int_equal(write_new(t, scratch_path(t, "link")), AMPC_OK);
    expect_new(t);
    assert_int_equal(lstat(scratch_path(t, "link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

TEST_SCRATCH(test_sweep)
{
    rt_atomic_file *living;
    scratch_write(t, ".ckpt-1.safetensors.99-0.ampc-tmp", "x", 1);
    scratch_write(t, ".other.99-0.ampc-tmp", "x", 1);
    scratch_write(t, "ckpt-1.safetensors", "x", 1);
    assert_int_equal(rt_atomic_open(scratch_path(t, "ckpt-2"), t->d, &living), AMPC_OK);
    assert_int_equal(rt_atomic_sweep(t->folder, "ckpt-"), 1);
    assert_int_equal(rt_atomic_sweep(t->folder, "ckpt-"), 0);
    assert_int_equal(scratch_count(t), 3);
    assert_int_equal(rt_atomic_commit(living), AMPC_OK);
    assert_int_equal(rt_atomic_sweep(scratch_path(t, "absent"), ""), 0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)(i * 31);
    return test_run();
}
