/* test_tar.c - indexing and reading tar archives, as written by libarchive in several formats; damaged archives. */
#include "runtime/data/tar.h"
#include "tests/unit/scratch.h"

#include <archive.h>
#include <archive_entry.h>
#include <pthread.h>
#include <sys/stat.h>

enum { FILES = 20 };

static bool is_class(const char *name) { return strstr(name, ".cls") != NULL; }

static size_t size_of(int i) { return (size_t)(i % 3 ? i * 700 : 0); }

static void add(struct archive *a, const char *name, int type, const void *bytes, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)n);
    archive_entry_set_filetype(e, (unsigned)type);
    archive_entry_set_perm(e, 0644);
    if (type == AE_IFLNK) archive_entry_set_symlink(e, "elsewhere");
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, bytes, n), n);
    archive_entry_free(e);
}

/* Entry i is named by a long path, and all its bytes are i. `odd` is the type of one entry more; 0: none. */
static const char *write_tar(scratch *t, const char *format, const char *filter, int odd)
{
    const char *path = scratch_path(t, "a.tar");
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_set_format_by_name(a, format), ARCHIVE_OK);
    if (filter) assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    add(a, "folder/", AE_IFDIR, "", 0);
    for (int i = 0; i < FILES; i++) {
        char name[200], bytes[FILES * 700];
        memset(bytes, i, sizeof bytes);
        snprintf(name, sizeof name, "folder/%0*d.bin", strcmp(format, "ustar") ? 150 : 50, i);
        add(a, name, AE_IFREG, bytes, size_of(i));
    }
    add(a, "last.cls", AE_IFREG, "12\n", 3);
    if (odd) add(a, "odd", odd, "", 0);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return path;
}

static void expect_entry(const rt_tar *tar, int i, diag *d)
{
    void *bytes;
    assert_int_equal(rt_tar_read(tar, (size_t)i, d, &bytes), AMPC_OK);
    for (size_t k = 0; k < size_of(i); k++) assert_int_equal(((char *)bytes)[k], i);
    free(bytes);
}

TEST_SCRATCH(test_formats)
{
    static const char *const formats[] = {"ustar", "pax", "gnutar"};
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        rt_tar tar;
        assert_int_equal(rt_tar_open(write_tar(t, formats[k], NULL, 0), is_class, t->d, &tar), AMPC_OK);
        assert_int_equal(tar.count, FILES + 1);
        assert_string_equal(tar.entries[FILES].text, "12\n");
        assert_null(tar.entries[0].text);
        for (int i = FILES; i-- > 0;) {
            assert_int_equal(tar.entries[i].size, size_of(i));
            expect_entry(&tar, i, t->d);
        }
        rt_tar_clear(&tar);
    }
}

static void *read_all(void *tar)
{
    diag *d = diag_new(NULL, NULL);
    for (int i = 0; i < FILES; i++) expect_entry(tar, i, d);
    diag_free(d);
    return NULL;
}

TEST_SCRATCH(test_threads)
{
    rt_tar tar;
    pthread_t threads[4];
    assert_int_equal(rt_tar_open(write_tar(t, "pax", NULL, 0), is_class, t->d, &tar), AMPC_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_all, &tar), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    rt_tar_clear(&tar);
}

static void expect_refused(scratch *t, const char *path, const char *message)
{
    rt_tar tar;
    diag_clear(t->d);
    assert_int_equal(rt_tar_open(path, is_class, t->d, &tar), AMPC_REJECTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(t->d), message)) fail_msg("'%s' lacks '%s'", diag_first_error(t->d), message);
}

TEST_SCRATCH(test_refused)
{
    expect_refused(t, write_tar(t, "pax", "gzip", 0), "a.tar: error: not an uncompressed tar archive");
    expect_refused(t, write_tar(t, "pax", NULL, AE_IFLNK), "'odd': error: the entry is not a regular file");
    scratch_write(t, "empty.tar", "", 0);
    expect_refused(t, scratch_path(t, "empty.tar"), "not an uncompressed tar archive");
}

/* Every shorter archive is refused, except where only zero blocks of the end marker are missing. */
TEST_SCRATCH(test_truncated)
{
    size_t n;
    const char *path = write_tar(t, "ustar", NULL, 0);
    char *bytes = scratch_read(t, "a.tar", &n);
    size_t end = n;
    while (!bytes[end - 1]) end--; /* the end of the last entry's data */
    end = (end + 511) / 512 * 512;
    for (size_t k = 0; k <= end; k += k + 600 > end ? 1 : 331) {
        scratch_write(t, "a.tar", bytes, k);
        expect_refused(t, path, "a.tar: ");
    }
    free(bytes);
}

/* The archive shrinks, or is replaced, after it was indexed. */
TEST_SCRATCH(test_changed)
{
    rt_tar tar;
    void *bytes;
    const char *path = write_tar(t, "ustar", NULL, 0);
    assert_int_equal(rt_tar_open(path, is_class, t->d, &tar), AMPC_OK);
    const uint64_t starts[] = {0, tar.entries[7].header, tar.entries[7].header + 700, tar.entries[8].header - 600};
    for (size_t i = 4; i-- > 0;) {
        assert_int_equal(truncate(path, (off_t)starts[i]), 0);
        diag_clear(t->d);
        assert_int_equal(rt_tar_read(&tar, 7, t->d, &bytes), AMPC_IO);
        if (!strstr(diag_first_error(t->d), "7.bin': error: the archive ")) fail_msg("%s", diag_first_error(t->d));
        assert_null(bytes);
    }
    unlink(path);
    diag_clear(t->d);
    assert_int_equal(rt_tar_read(&tar, 7, t->d, &bytes), AMPC_IO);
    rt_tar_clear(&tar);
}
