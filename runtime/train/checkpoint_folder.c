/* checkpoint_folder.c - generations of checkpoints: finding the newest, removing old ones, falling back to older
 * ones. */
#include "runtime/train/checkpoint.h"

#include "runtime/files/atomic_file.h"
#include "runtime/train/checkpoint_file.h"
#include "runtime/files/io.h"
#include "runtime/backend/memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "ckpt-"
#define SUFFIX ".safetensors"
#define BEST "best"
enum { DIGITS = 10, MIN_KEEP = 2, PREFIX_LENGTH = sizeof PREFIX - 1 };

/* ---- listing ---- */

static int is_checkpoint(const struct dirent *e)
{
    const char *name = e->d_name;
    if (strncmp(name, PREFIX, PREFIX_LENGTH) != 0) return 0;
    return strspn(name + PREFIX_LENGTH, "0123456789") == DIGITS && strcmp(name + PREFIX_LENGTH + DIGITS, SUFFIX) == 0;
}

typedef struct generations { /* oldest first */
    struct dirent **items;
    int count;
} generations;

static ampc_status list(const char *folder, diag *d, generations *g)
{
    *g = (generations){0};
    int n = scandir(folder, &g->items, is_checkpoint, alphasort);
    if (n < 0) return diag_errno(d, DIAG_FILE(folder), "cannot read the folder");
    g->count = n;
    return AMPC_OK;
}

static void list_clear(generations *g)
{
    for (int i = 0; i < g->count; i++) free(g->items[i]);
    free(g->items);
}

static char *path_in(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

ampc_status rt_checkpoint_list(const char *folder, diag *d, rt_names *out)
{
    generations g;
    TRY(list(folder, d, &g));
    ampc_status s = AMPC_OK;
    for (int i = 0; s == AMPC_OK && i < g.count; i++) s = rt_names_add(out, path_in(folder, g.items[i]->d_name), d);
    list_clear(&g);
    if (s != AMPC_OK || !rt_checkpoint_has_best(folder)) return s;
    return rt_names_add(out, path_in(folder, BEST SUFFIX), d);
}

ampc_status rt_checkpoint_newest(const char *folder, diag *d, char **path)
{
    generations g;
    *path = NULL;
    TRY(list(folder, d, &g));
    if (g.count) *path = path_in(folder, g.items[g.count - 1]->d_name);
    ampc_status s = g.count && !*path ? rt_no_memory(d) : AMPC_OK;
    list_clear(&g);
    return s;
}

ampc_status rt_checkpoint_folder(const char *folder, diag *d)
{
    struct stat st;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return diag_errno(d, DIAG_FILE(folder), "cannot create the folder");
    if (stat(folder, &st) != 0) return diag_errno(d, DIAG_FILE(folder), "cannot open the folder");
    if (!S_ISDIR(st.st_mode)) return diag_error(d, AMPC_IO, DIAG_FILE(folder), "not a folder");
    rt_atomic_sweep(folder, PREFIX);
    rt_atomic_sweep(folder, BEST SUFFIX);
    return AMPC_OK;
}

/* ---- writing ---- */

static ampc_status prune(const char *folder, int keep, diag *d)
{
    generations g;
    TRY(list(folder, d, &g));
    ampc_status s = AMPC_OK;
    for (int i = 0; s == AMPC_OK && i < g.count - (keep < MIN_KEEP ? MIN_KEEP : keep); i++) {
        char *path = path_in(folder, g.items[i]->d_name);
        if (!path) s = rt_no_memory(d);
        else if (unlink(path) != 0 && errno != ENOENT)
            s = diag_errno(d, DIAG_FILE(path), "cannot remove the old checkpoint");
        free(path);
    }
    list_clear(&g);
    return s;
}

ampc_status rt_checkpoint_put(rt_session *s, const ir_module *m, const rt_run_state *run, const char *folder, int keep,
                              diag *d)
{
    char *path;
    if (asprintf(&path, "%s/" PREFIX "%0*" PRIu64 SUFFIX, folder, DIGITS, run->step) < 0) return rt_no_memory(d);
    ampc_status status = rt_checkpoint_write(s, m, run, path, d);
    free(path);
    return status == AMPC_OK ? prune(folder, keep, d) : status;
}

ampc_status rt_checkpoint_put_best(rt_session *s, const ir_module *m, const rt_run_state *run, const char *folder,
                                   diag *d)
{
    char *path = path_in(folder, BEST SUFFIX);
    if (!path) return rt_no_memory(d);
    ampc_status status = rt_checkpoint_write(s, m, run, path, d);
    free(path);
    return status;
}

bool rt_checkpoint_has_best(const char *folder)
{
    char *path = path_in(folder, BEST SUFFIX);
    const bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

/* ---- resuming ---- */

/* Renames a damaged file, so that later resumes and pruning ignore it. */
static ampc_status set_aside(const char *path, diag *d)
{
    char *aside;
    if (asprintf(&aside, "%s.damaged", path) < 0) return rt_no_memory(d);
    ampc_status s = rt_io_rename(path, aside) ? AMPC_OK
                                              : diag_errno(d, DIAG_FILE(path), "cannot rename the damaged checkpoint");
    free(aside);
    return s;
}

/* Handles a generation that could not be opened for `reason`. Only invalid content (AMPC_REJECTED) is damage; a file
 * that cannot be read now may be readable later. AMPC_OK: try the previous generation. */
static ampc_status report_or_fall_back(const char *path, const char *older, bool allow_fallback, ampc_status code,
                                       const char *reason, diag *d)
{
    if (code != AMPC_REJECTED) return diag_error(d, code, DIAG_NOWHERE, "%s; nothing was resumed or changed", reason);
    if (!older) return diag_error(d, code, DIAG_NOWHERE, "%s; there is no older checkpoint to resume from", reason);
    if (!allow_fallback)
        return diag_error(d, code, DIAG_USE(DIAG_NOWHERE, OPTION_allow_fallback, .purpose = "to resume from that"),
                          "%s; the checkpoint before it is '%s'", reason, older);
    TRY(set_aside(path, d));
    return diag_warning(d, DIAG_NOWHERE, "%s; resuming from '%s' instead", reason, older);
}

/* Opens the newest readable generation. `quiet` collects the messages about unreadable ones. */
static ampc_status open_newest(const char *folder, const generations *g, bool allow_fallback, diag *quiet, diag *d,
                               rt_checkpoint_file **file, char **path)
{
    for (int i = g->count - 1; i >= 0; i--) {
        diag_clear(quiet);
        *path = path_in(folder, g->items[i]->d_name);
        if (!*path) return rt_no_memory(d);
        ampc_status s = rt_checkpoint_file_open(*path, RT_CHECKPOINT_ALL, quiet, file);
        if (s == AMPC_OK) return AMPC_OK;
        if (s == AMPC_NO_MEMORY) return rt_no_memory(d);
        s = report_or_fall_back(*path, i ? g->items[i - 1]->d_name : NULL, allow_fallback, s, diag_first_error(quiet),
                                d);
        if (s != AMPC_OK) return s;
        free(*path);
        *path = NULL;
    }
    return AMPC_OK;
}

static ampc_status load_newest(rt_session *s, const ir_module *m, const char *folder, const generations *g,
                               const rt_checkpoint_how *how, bool allow_fallback, diag *d, rt_run_state *run,
                               char **path)
{
    rt_checkpoint_file *file = NULL;
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet) return rt_no_memory(d);
    ampc_status status = open_newest(folder, g, allow_fallback, quiet, d, &file, path);
    if (status == AMPC_OK && file) {
        rt_checkpoint_file_report_to(file, d);
        status = rt_checkpoint_file_load(file, s, m, how, run);
    }
    rt_checkpoint_file_free(file);
    diag_free(quiet);
    return status;
}

ampc_status rt_checkpoint_resume(rt_session *s, const ir_module *m, const char *folder, const rt_checkpoint_how *how,
                                 bool allow_fallback, diag *d, rt_run_state *run, char **path)
{
    generations g;
    *path = NULL;
    TRY(list(folder, d, &g));
    ampc_status status = load_newest(s, m, folder, &g, how, allow_fallback, d, run, path);
    list_clear(&g);
    if (status == AMPC_OK) return AMPC_OK;
    free(*path);
    *path = NULL;
    return status;
}
