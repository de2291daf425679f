/* cache.h - files that may vanish: what was found out on this machine and can be found out again.
 *
 * They lie in $XDG_CACHE_HOME/ampc (or ~/.cache/ampc). What cannot be read counts as absent, what cannot be written is
 * not written; a file is replaced as a whole, by rename. */
#ifndef AMPC_CUDA_CACHE_H
#define AMPC_CUDA_CACHE_H

#include <stddef.h>

/* The file's bytes, malloc'ed, and a 0 behind them; NULL: there is none, or it is larger than `most`. */
char *cuda_cache_read(const char *name, size_t most, size_t *bytes);
void cuda_cache_write(const char *name, const void *data, size_t bytes);

#endif
