/* libarchive.h - libarchive, opened when the first archive is read.
 *
 * The library brings a dozen others, whose loading would take longer than the compilation of a small model. */
#ifndef RT_LIBARCHIVE_H
#define RT_LIBARCHIVE_H

#include "ir/base/diag.h"

#include <archive.h>
#include <archive_entry.h>

#define RT_LIBARCHIVE_MAP(X) \
    X(archive_entry_filetype) \
    X(archive_entry_hardlink) \
    X(archive_entry_pathname) \
    X(archive_entry_pathname_utf8) \
    X(archive_entry_size) \
    X(archive_errno) \
    X(archive_read_data) \
    X(archive_read_free) \
    X(archive_read_header_position) \
    X(archive_read_new) \
    X(archive_read_next_header) \
    X(archive_read_open1) \
    X(archive_read_set_callback_data) \
    X(archive_read_set_read_callback) \
    X(archive_read_set_skip_callback) \
    X(archive_read_support_format_tar) \
    X(archive_set_error)

typedef struct rt_libarchive {
#define MEMBER(name) __typeof__(&name) name;
    RT_LIBARCHIVE_MAP(MEMBER)
#undef MEMBER
} rt_libarchive;

/* Thread-safe. Fails with AMPC_DEVICE if the library is missing. */
ampc_status rt_libarchive_open(diag *d, const rt_libarchive **out);

#endif
