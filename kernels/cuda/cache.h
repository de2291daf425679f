/* cache.h - disk cache for results that can be recomputed on this machine.
 *
 * Files are in $XDG_CACHE_HOME/ampc (or ~/.cache/ampc). Unreadable files count as missing, and write errors are
 * ignored. Files are replaced atomically by rename. A sealed file is identified by a key, the hash of everything that
 * its content depends on. It contains the key, its size and a hash of its content, and counts as missing if any of
 * these does not match. */
#ifndef AMPC_CUDA_CACHE_H
#define AMPC_CUDA_CACHE_H

#include <stddef.h>
#include <stdint.h>

/* Returns the file's content, malloc'ed, with a 0 byte appended; NULL if it does not exist or has more than `max_bytes`
 * bytes. */
char *cuda_cache_read(const char *name, size_t max_bytes, size_t *bytes);
void cuda_cache_write(const char *name, const void *data, size_t bytes);

/* Two different hashes of the same data: one is part of the file name, the other is in the file. */
typedef struct cuda_cache_key {
    uint64_t name, inside;
} cuda_cache_key;

cuda_cache_key cuda_cache_start(void); /* the key of empty data */
void cuda_cache_add(cuda_cache_key *key, const void *data, size_t bytes);
void cuda_cache_add_text(cuda_cache_key *key, const char *text);

/* Like read and write, for the sealed file KIND-KEY. */
char *cuda_cache_find(const char *kind, const cuda_cache_key *key, size_t max_bytes, size_t *bytes);
void cuda_cache_store(const char *kind, const cuda_cache_key *key, const void *data, size_t bytes);

#endif
