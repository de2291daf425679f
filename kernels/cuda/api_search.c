/* api_search.c - search for the CUDA libraries (cuda_system in api.h).
 *
 * Locations are tried in order, and the first file that the loader accepts is used. If there is none, the error is that
 * of the first file that exists but cannot be loaded, or else "not found". Python is never run to find its folders;
 * they are derived from environment variables and from the path of python3. */
#include "kernels/cuda/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct search {
    char file[64];
    void *handle;
    char reason[512]; /* loader error for the first file that exists but cannot be loaded */
} search;

/* Tries to load `path`: a file, or a bare name that the loader searches for. */
static bool try_file(search *s, const char *path)
{
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle) return true;
    const char *reason = dlerror();
    bool exists = strchr(path, '/') && access(path, F_OK) == 0;
    if (exists && !s->reason[0]) snprintf(s->reason, sizeof s->reason, "%s", reason ? reason : path);
    return false;
}

/* Tries all matches of a glob pattern below a folder. */
static bool try_pattern(search *s, const char *folder, const char *pattern)
{
    char path[PATH_MAX];
    glob_t found = {0};
    int n = snprintf(path, sizeof path, "%s/%s%s", folder, pattern, s->file);
    if (n < 0 || (size_t)n >= sizeof path) return false;
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !s->handle; i++) try_file(s, found.gl_pathv[i]);
    globfree(&found);
    return s->handle != NULL;
}

static bool try_library_path(search *s)
{
    const char *at = getenv("AMPC_CUDA_PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        char folder[PATH_MAX];
        if (length && length < sizeof folder) {
            memcpy(folder, at, length);
            folder[length] = 0;
            if (try_pattern(s, folder, "") || try_pattern(s, folder, "lib64/") || try_pattern(s, folder, "lib/") ||
                try_pattern(s, folder, "nvidia/*/lib/"))
                return true;
        }
        at += length + (at[length] == ':');
    }
    return false;
}

/* Tries the wheels of the Python installation under `prefix`. */
static bool try_python(search *s, const char *prefix)
{
    return prefix && *prefix && try_pattern(s, prefix, "lib/python3*/*-packages/nvidia/*/lib/");
}

/* PREFIX/bin/python3 -> PREFIX. Returns false if the path has fewer than two parents. */
static bool cut_prefix(char *program)
{
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (!slash || slash == program) return false;
        *slash = 0;
    }
    return true;
}

/* Tries the first python3 on PATH, both unresolved (virtual environments) and with symbolic links resolved. */
static bool try_python_on_path(search *s)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        char program[PATH_MAX], target[PATH_MAX];
        int n = snprintf(program, sizeof program, "%.*s/python3", (int)length, at);
        if (n > 0 && (size_t)n < sizeof program && access(program, X_OK) == 0) {
            bool linked = realpath(program, target) != NULL;
            return (cut_prefix(program) && try_python(s, program)) ||
                   (linked && cut_prefix(target) && try_python(s, target));
        }
        at += length + (at[length] == ':');
    }
    return false;
}

static bool try_wheels(search *s)
{
    char local[PATH_MAX];
    const char *home = getenv("HOME");
    if (try_python(s, getenv("VIRTUAL_ENV")) || try_python(s, getenv("CONDA_PREFIX")) || try_python_on_path(s))
        return true;
    int n = home ? snprintf(local, sizeof local, "%s/.local", home) : -1;
    return n > 0 && (size_t)n < sizeof local && try_python(s, local);
}

static const struct {
    const char *name;
    int major; /* of the headers */
} files[] = {
#define CUDA_LIBRARY(id, name, major, title) {name, major},
#include "kernels/cuda/api.def"
};

void cuda_library_file(cuda_library library, char *out, size_t size)
{
    snprintf(out, size, "%s.%d", files[library].name, files[library].major);
}

static void *open_system(cuda_library library, char *error, size_t error_size)
{
    search s = {.handle = NULL};
    cuda_library_file(library, s.file, sizeof s.file);
    if (try_library_path(&s) || try_file(&s, s.file) || try_pattern(&s, "/usr/local/cuda/lib64", "") || try_wheels(&s))
        return s.handle;
    if (s.reason[0]) snprintf(error, error_size, "%s cannot be loaded: %s", s.file, s.reason);
    else
        snprintf(error, error_size,
                 "%s was not found (AMPC_CUDA_PATH, the loader's path, /usr/local/cuda/lib64, Python's "
                 "nvidia wheels)",
                 s.file);
    return NULL;
}

static void *system_symbol(void *handle, cuda_library library, const char *name)
{
    (void)library;
    return dlsym(handle, name);
}

const cuda_provider cuda_system = {.open = open_system, .symbol = system_symbol};
