/* scratch.h - a new folder and a diag for each test that uses files; the teardown removes both.
 *
 * Header only, because every unit test is a single program. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include "ir/base/diag.h"
#include "tests/messages.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <unistd.h>

typedef struct scratch {
    char *folder;
    char **paths; /* all paths returned by scratch_path */
    size_t n_paths;
    diag *d;
} scratch;

static inline int scratch_setup_in(void **state, const char *parent)
{
    scratch *t = calloc(1, sizeof *t);
    if (asprintf(&t->folder, "%s/ampc-test-XXXXXX", parent) < 0 || !mkdtemp(t->folder)) return -1;
    t->d = diag_new(NULL, NULL);
    *state = t;
    return 0;
}

static inline int scratch_setup(void **state) { return scratch_setup_in(state, "/tmp"); }

/* For tests that save thousands of files: in memory, where fsync costs nothing, if the system has such a folder. */
static inline int scratch_setup_in_memory(void **state)
{
    static const char memory[] = "/dev/shm";
    return scratch_setup_in(state, access(memory, W_OK) == 0 ? memory : "/tmp");
}

/* Returns a path in the folder, valid until the end of the test. */
static inline const char *scratch_path(scratch *t, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s", t->folder, name) > 0);
    for (size_t i = 0; i < t->n_paths; i++) {
        if (strcmp(t->paths[i], path) != 0) continue;
        free(path);
        return t->paths[i];
    }
    t->paths = realloc(t->paths, (t->n_paths + 1) * sizeof *t->paths);
    return t->paths[t->n_paths++] = path;
}

/* Counts the files in the folder. */
static inline size_t scratch_count(scratch *t)
{
    size_t n = 0;
    DIR *dir = opendir(t->folder);
    for (struct dirent *e; (e = readdir(dir));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static inline int scratch_remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type;
    return at->level ? remove(path) : 0;
}

/* Removes everything in a folder. */
static inline void scratch_clear(const char *folder) { nftw(folder, scratch_remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

static inline int scratch_teardown(void **state)
{
    scratch *t = *state;
    scratch_clear(t->folder);
    int result = rmdir(t->folder);
    const char *complaint = message_complaint(t->d);
    if (complaint) print_error("%s\n", complaint), result = -1;
    diag_free(t->d);
    for (size_t i = 0; i < t->n_paths; i++) free(t->paths[i]);
    free(t->paths);
    free(t->folder);
    free(t);
    return result;
}

static inline void scratch_write(scratch *t, const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(scratch_path(t, name), "wb");
    assert_non_null(f);
    if (n) assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Returns the whole file with a terminating 0; the caller frees it. */
static inline char *scratch_read(scratch *t, const char *name, size_t *n)
{
    FILE *f = fopen(scratch_path(t, name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n + 1);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    bytes[*n] = 0;
    fclose(f);
    return bytes;
}

/* Asserts that the first error since the last call, or since diag_clear, contains `text`. */
static inline void scratch_expect(scratch *t, const char *text)
{
    const char *complaint = message_complaint(t->d);
    if (complaint) fail_msg("%s", complaint);
    if (!strstr(diag_first_error(t->d), text)) fail_msg("expected '%s' in: %s", text, diag_first_error(t->d));
    diag_clear(t->d);
}

#define TEST_SCRATCH(name) TEST_WITH(scratch_setup, scratch_teardown, scratch *t, name)

#endif
