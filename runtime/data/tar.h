/* tar.h - uncompressed tar archives: an index of the entries, and their contents in any order.
 *
 * libarchive decodes the headers, so names and sizes in GNU and pax extensions are understood. */
#ifndef RT_TAR_H
#define RT_TAR_H

#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* A regular file. */
typedef struct rt_tar_entry {
    char *name;
    uint64_t header; /* offset of its first header, extensions included */
    uint64_t size;
    char *text; /* the contents, terminated by a zero byte, if they were kept; otherwise NULL */
} rt_tar_entry;

typedef struct rt_tar {
    char *path;
    rt_tar_entry *entries; /* in the order of the archive */
    size_t count;
} rt_tar;

enum { RT_TAR_MAX_ENTRY = 1 << 30, RT_TAR_MAX_KEPT = 1 << 16 };

/* Indexes the archive. Contents are kept if `keep` returns true for the name, for which they must be at most
 * RT_TAR_MAX_KEPT bytes. Rejects compressed and truncated archives, links and devices, naming the entry, if any; fails
 * also with AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_tar_open(const char *path, bool (*keep)(const char *name), diag *d, rt_tar *out);
void rt_tar_clear(rt_tar *t);

/* Reads one entry into *bytes, malloced, of t->entries[index].size bytes. Opens the file again: thread-safe. Fails with
 * AMPC_IO if the file has changed or is shorter than when it was indexed. */
ampc_status rt_tar_read(const rt_tar *t, size_t index, diag *d, void **bytes);

#endif
