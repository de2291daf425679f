/* cache.h - files that may vanish: what was found out on this machine and can be found out again.
 *
 * They lie in $XDG_CACHE_HOME/ampc (or ~/.cache/ampc). What cannot be read counts as absent, what cannot be written is
 * not written; a file is replaced as a whole, by rename. A sealed file is found by a key, the hash of everything that
 * its content comes from, and holds the key, its size and a hash of the content: what does not fit counts as absent. */
#ifndef AMPC_CUDA_CACHE_H
#define AMPC_CUDA_CACHE_H

#include <stddef.h>
#include <stdint.h>

/* The file's bytes, malloc'ed, and a 0 behind them; NULL: there is none, or it is larger than `most`. */
char *cuda_cache_read(const char *name, size_t most, size_t *bytes);
void cuda_cache_write(const char *name, const void *data, size_t bytes);

/* Two hashes of the same: one names the file, one stands in it. */
typedef struct cuda_cache_key {
    uint64_t name, inside;
} cuda_cache_key;

cuda_cache_key cuda_cache_start(void); /* of nothing yet */
void cuda_cache_add(cuda_cache_key *key, const void *data, size_t bytes);
void cuda_cache_add_text(cuda_cache_key *key, const char *text);

/* As read and write, for the sealed file KIND-KEY. */
char *cuda_cache_find(const char *kind, const cuda_cache_key *key, size_t most, size_t *bytes);
void cuda_cache_keep(const char *kind, const cuda_cache_key *key, const void *data, size_t bytes);

#endif
