/* cache.c - files in the user's cache folder (see cache.h). */
#include "kernels/cuda/cache.h"

#include "ir/base/input_file.h"
#include "ir/base/write_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns false if there is no cache folder or the path is too long. `make`: create the folder. */
static bool file_path(const char *name, char *out, size_t size, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_MAX - 64];
    int n = -1;
    if (cache && cache[0] == '/') n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && home[0] == '/') n = snprintf(folder, sizeof folder, "%s/.cache", home);
    if (n < 0 || (size_t)n >= sizeof folder) return false;
    if (make) mkdir(folder, 0700);
    n = snprintf(out, size, "%s/ampc", folder);
    if (make) mkdir(out, 0755);
    n = snprintf(out, size, "%s/ampc/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

char *cuda_cache_read(const char *name, size_t max_bytes, size_t *bytes)
{
    char path[PATH_MAX], *data = NULL;
    diag *quiet = file_path(name, path, sizeof path, false) ? diag_new(NULL, NULL) : NULL;
    if (quiet) (void)input_read(path, max_bytes, "too long", quiet, &data, bytes);
    diag_free(quiet);
    return data;
}

void cuda_cache_write(const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    if (!file_path(name, path, sizeof path, true)) return;
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0) return;
    bool written = write_guarded(file, data, bytes) && fsync(file) == 0;
    written = close(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) unlink(temporary);
}

/* ---- sealed files ---------------------------------------------------------------------------- */

typedef struct seal {
    char magic[16];
    uint64_t key, size, check;
} seal;
static const char magic[16] = "ampc sealed 1\n";

/* FNV-1a; the two hashes differ in their start value. */
static uint64_t hash(uint64_t h, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

cuda_cache_key cuda_cache_start(void) { return (cuda_cache_key){0xcbf29ce484222325u, 0x9ae16a3b2f90404fu}; }

void cuda_cache_add(cuda_cache_key *key, const void *data, size_t bytes)
{
    key->name = hash(key->name, data, bytes);
    key->inside = hash(key->inside, data, bytes);
}

void cuda_cache_add_text(cuda_cache_key *key, const char *text) { cuda_cache_add(key, text, strlen(text) + 1); }

static void sealed_name(const char *kind, const cuda_cache_key *key, char *out, size_t size)
{
    snprintf(out, size, "%s-%016" PRIx64, kind, key->name);
}

static seal seal_of(const cuda_cache_key *key, const void *data, size_t bytes)
{
    seal s = {.key = key->inside, .size = bytes, .check = hash(cuda_cache_start().name, data, bytes)};
    memcpy(s.magic, magic, sizeof magic);
    return s;
}

char *cuda_cache_find(const char *kind, const cuda_cache_key *key, size_t max_bytes, size_t *bytes)
{
    char name[64];
    sealed_name(kind, key, name, sizeof name);
    char *data = cuda_cache_read(name, max_bytes, bytes);
    if (data && *bytes > sizeof(seal)) {
        *bytes -= sizeof(seal);
        const seal right = seal_of(key, data + sizeof(seal), *bytes);
        const bool fits = memcmp(data, &right, sizeof right) == 0;
        memmove(data, data + sizeof(seal), *bytes + 1);
        if (fits) return data;
    }
    free(data);
    return NULL;
}

void cuda_cache_store(const char *kind, const cuda_cache_key *key, const void *data, size_t bytes)
{
    char name[64], *file = malloc(sizeof(seal) + bytes);
    if (!file) return;
    const seal s = seal_of(key, data, bytes);
    memcpy(file, &s, sizeof s);
    memcpy(file + sizeof s, data, bytes);
    sealed_name(kind, key, name, sizeof name);
    cuda_cache_write(name, file, sizeof s + bytes);
    free(file);
}
