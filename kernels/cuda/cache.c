/* cache.c - files in the user's cache folder (see cache.h). */
#include "kernels/cuda/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* False when there is no folder to speak of. `make`: it is created. */
static bool file_path(const char *name, char *out, size_t size, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_MAX - 64];
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(folder, sizeof folder, "%s/.cache", home);
    if (n < 0 || (size_t)n >= sizeof folder) return false;
    if (make) mkdir(folder, 0700);
    n = snprintf(out, size, "%s/ampc", folder);
    if (make) mkdir(out, 0755);
    n = snprintf(out, size, "%s/ampc/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

char *cuda_cache_read(const char *name, size_t most, size_t *bytes)
{
    char path[PATH_MAX];
    struct stat about;
    FILE *f = file_path(name, path, sizeof path, false) ? fopen(path, "re") : NULL;
    if (!f) return NULL;
    char *data = NULL;
    if (fstat(fileno(f), &about) == 0 && S_ISREG(about.st_mode) && (uintmax_t)about.st_size <= most)
        data = malloc((size_t)about.st_size + 1);
    if (data) {
        *bytes = fread(data, 1, (size_t)about.st_size, f);
        data[*bytes] = 0;
    }
    fclose(f);
    return data;
}

static bool write_whole(int file, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(file, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

void cuda_cache_write(const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    if (!file_path(name, path, sizeof path, true)) return;
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0) return;
    bool written = write_whole(file, data, bytes) && fsync(file) == 0;
    written = close(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) unlink(temporary);
}
