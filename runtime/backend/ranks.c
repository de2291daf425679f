/* ranks.c - finds the launcher and the plug-in of its MPI, and opens the ranks. */
#include "runtime/backend/ranks.h"

#include "runtime/backend/ranks_mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a reduction in shared memory: small enough for the caches, and large compared with two meetings of the ranks. */
enum { PIECE_BYTES = 256 << 10 };

/* Launchers by the variables that they set; the first one that matches. */
static const struct launcher {
    const char *count; /* the variable with the number of processes */
    const char *also;  /* a variable that must exist; NULL: none */
    const char *name;  /* in messages */
    const char
        *mpi; /* of the plug-in ampc-mpi/libampc-mpi-MPI.so, and of the package libMPI-dev that its build needs */
    const char *package;
    const char *remedy; /* if the processes do not see each other */
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", NULL, "mpirun of Open MPI", "openmpi", "libopenmpi3",
     "start it with the launcher of that MPI"},
    {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", "srun", "openmpi", "libopenmpi3", "or use pmi2 as option mpi of srun"},
    {"PMI_SIZE", NULL, "mpiexec of MPICH", "mpich", "libmpich12", "start it with the launcher of that MPI"},
    {"SLURM_STEP_NUM_TASKS", NULL, "srun", "openmpi", "libopenmpi3", "use pmix or pmi2 as option mpi of srun"},
};

static bool some_failed;

static int launched_count(const struct launcher *l)
{
    const char *text = getenv(l->count);
    const long n = text && (!l->also || getenv(l->also)) ? strtol(text, NULL, 10) : 0;
    return n > 1 && n <= INT_MAX ? (int)n : 1;
}

static const struct launcher *find_launcher(int *count)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if ((*count = launched_count(&launchers[i])) > 1) return &launchers[i];
    return NULL;
}

bool rt_ranks_launched(void)
{
    int count;
    return find_launcher(&count) != NULL;
}

/* The file of a plug-in: the user's, one for this cluster, or that for the launcher. */
static void find_plugin(const struct launcher *l, char *path, size_t size)
{
    const char *given = getenv("AMPC_MPI");
    if (given && *given) {
        snprintf(path, size, "%s", given);
        return;
    }
    Dl_info here;
    void *self;
    bool (*function)(void) = rt_ranks_launched;
    memcpy(&self, &function, sizeof self);
    const char *end = dladdr(self, &here) && here.dli_fname ? strrchr(here.dli_fname, '/') : NULL;
    const int folder = end ? (int)(end - here.dli_fname) + 1 : 0;
    snprintf(path, size, "%.*sampc-mpi/libampc-mpi.so", folder, folder ? here.dli_fname : "");
    if (access(path, R_OK) != 0)
        snprintf(path, size, "%.*sampc-mpi/libampc-mpi-%s.so", folder, folder ? here.dli_fname : "", l->mpi);
}

static ampc_status load_plugin(const struct launcher *l, diag *d, char *path, size_t size, const ampc_mpi **mpi)
{
    find_plugin(l, path, size);
    if (access(path, R_OK) != 0)
        return diag_error(d, AMPC_DEVICE, DIAG_FILE(path),
                          "%s started this program, but there is no plug-in for its MPI; install package lib%s-dev and "
                          "build ampc again, or build the plug-in alone (mpicc -O2 -shared -fPIC "
                          "PREFIX/share/ampc/plugin.c -o libampc-mpi.so) and set AMPC_MPI to its path",
                          l->name, l->mpi);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *symbol; /* Open MPI has plug-ins that look for its symbols */
    if (!library)
        return diag_error(d, AMPC_DEVICE, DIAG_FILE(path), "the MPI of %s cannot be opened (package %s): %s", l->name,
                          l->package, dlerror());
    symbol = dlsym(library, AMPC_MPI_SYMBOL);
    ampc_mpi_opener *opener = NULL;
    memcpy(&opener, &symbol, sizeof opener);
    *mpi = opener ? opener() : NULL;
    if (*mpi && (*mpi)->version == AMPC_MPI_VERSION) return AMPC_OK;
    dlclose(library);
    return diag_error(d, AMPC_DEVICE, DIAG_FILE(path),
                      *mpi ? "this plug-in for MPI is of another version of ampc" : "this is not a plug-in for MPI");
}

/* Numbers the nodes: ranks that see each other's memory. */
static void number_nodes(rt_ranks *r, bool shared)
{
    const int count = r->table.count;
    r->nodes = 0;
    for (int i = 0; i < count; i++) {
        rt_rank_place *p = &r->peers.each[i].place;
        p->node = -1;
        for (int n = 0; shared && n < r->nodes && p->node < 0; n++) {
            const int first = r->node_first[n]; /* while the nodes are being found, one of their ranks */
            if (rt_places_meet(p, &r->peers.each[first].place)) p->node = n;
        }
        if (p->node >= 0) continue;
        r->node_first[r->nodes] = i;
        p->node = r->nodes++;
    }
    int at = 0;
    for (int n = 0; n < r->nodes; n++) {
        r->node_first[n] = at;
        for (int i = 0; i < count; i++) {
            if (r->peers.each[i].place.node != n) continue;
            if (i == r->table.index) r->local = at - r->node_first[n];
            r->node_ranks[at++] = i;
        }
    }
    r->node_first[r->nodes] = at;
}

static void add_spans(rt_ranks *r, rt_ranks_order *o, int first, int last)
{
    const int node = r->peers.each[o->ranks[first]].place.node;
    for (int p = first + 1; p < last; p++) {
        if (r->peers.each[o->ranks[p]].place.node == node) continue;
        const int middle = rt_ranks_middle(first, last);
        add_spans(r, o, first, middle);
        add_spans(r, o, middle, last);
        return;
    }
    o->spans[o->span_count++] = (rt_ranks_span){.first = first, .last = last, .node = node};
}

static ampc_status allocate(rt_ranks *r)
{
    const size_t count = (size_t)r->table.count;
    r->node_first = calloc(count + 1, sizeof *r->node_first);
    r->node_ranks = calloc(count, sizeof *r->node_ranks);
    r->terms = calloc(count, sizeof *r->terms);
    bool all = r->node_first && r->node_ranks && r->terms;
    for (int t = 0; t < 2; t++) {
        r->orders[t].ranks = calloc(count, sizeof *r->orders[t].ranks);
        r->orders[t].spans = calloc(count, sizeof *r->orders[t].spans);
        all = all && r->orders[t].ranks && r->orders[t].spans;
    }
    return all ? AMPC_OK : AMPC_NO_MEMORY;
}

/* Tells all ranks where each runs. */
static ampc_status meet(rt_ranks *r)
{
    const int count = r->table.count;
    const size_t size = sizeof(rt_rank_place);
    rt_rank_place *places = calloc((size_t)count, size);
    if (!places) return rt_ranks_no_memory(r);
    const rt_rank_place mine = r->peers.each[r->table.index].place;
    ampc_status status = rt_ranks_all_gather(&r->table, &mine, places, size);
    for (int i = 0; i < count && status == AMPC_OK; i++) r->peers.each[i].place = places[i];
    free(places);
    if (status != AMPC_OK) return status;
    rt_peers_open(&r->peers);
    char sees = 1, *all = calloc((size_t)count, 1);
    if (!all) return rt_ranks_no_memory(r);
    for (int i = 0; i < count; i++)
        if (rt_places_meet(&mine, &r->peers.each[i].place) && !r->peers.each[i].memory) sees = 0;
    status = rt_ranks_all_gather(&r->table, &sees, all, 1);
    const bool shared = status == AMPC_OK && !memchr(all, 0, (size_t)count);
    free(all);
    number_nodes(r, shared);
    if (status == AMPC_OK && r->nodes > 1 && !rt_notices_open(r)) status = rt_ranks_no_memory(r);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < count; i++) r->orders[t].ranks[i] = t ? i : r->node_ranks[i];
        add_spans(r, &r->orders[t], 0, count);
    }
    return status;
}

static void release(rt_ranks *r)
{
    rt_peers_close(&r->peers);
    for (int t = 0; t < 2; t++) {
        free(r->orders[t].ranks);
        free(r->orders[t].spans);
    }
    free(r->node_first);
    free(r->node_ranks);
    free(r->terms);
    free(r->transfers);
    free(r->scratch);
    free(r);
}

static ampc_status open_world(const struct launcher *l, int started, const char *path, rt_ranks *r, diag *d)
{
    char text[AMPC_MPI_TEXT];
    const int code = r->mpi->open(&r->table.index, &r->table.count);
    if (code) {
        r->mpi->text(code, text);
        return diag_error(d, AMPC_DEVICE, DIAG_FILE(path), "MPI cannot be opened: %s", text);
    }
    /* MPICH's launcher with -disable-auto-cleanup sends it to the others when a rank has ended; MPICH counts it. */
    signal(SIGUSR1, SIG_IGN);
    if (r->table.count == started) return AMPC_OK;
    r->mpi->name(text);
    return diag_error(d, AMPC_DEVICE, DIAG_FILE(path), "%s started %d processes, but %s sees %d; %s", l->name, started,
                      text, r->table.count, l->remedy);
}

ampc_status rt_ranks_open(const rt_ranks_options *options, diag *d, k_ranks **out)
{
    int started;
    char path[PATH_MAX];
    const struct launcher *l = find_launcher(&started);
    const ampc_mpi *mpi = NULL;
    *out = NULL;
    if (!l) return AMPC_OK;
    TRY(load_plugin(l, d, path, sizeof path, &mpi));
    rt_ranks *r = calloc(1, sizeof *r);
    if (!r) return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    r->mpi = mpi;
    r->timeout = options->timeout;
    ampc_status status = open_world(l, started, path, r, d);
    if (status != AMPC_OK) {
        free(r);
        return status;
    }
    r->table.share = 1.0 / r->table.count;
    r->table.all_reduce = rt_ranks_all_reduce;
    r->table.stage = rt_ranks_stage;
    r->table.all_gather = rt_ranks_all_gather;
    r->table.broadcast = rt_ranks_broadcast;
    r->table.check = rt_ranks_check;
    if (!rt_peers_begin(&r->peers, r->table.index, r->table.count))
        status = diag_errno(d, DIAG_NOWHERE, "the memory that ranks share cannot be made");
    else if (allocate(r) != AMPC_OK) status = diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    else if ((status = meet(r)) != AMPC_OK) diag_error(d, status, DIAG_NOWHERE, "%s", r->table.error);
    if (status != AMPC_OK) {
        some_failed = true;
        release(r);
        return status;
    }
    r->table.piece = r->nodes == 1 ? PIECE_BYTES : 0;
    *out = &r->table;
    return AMPC_OK;
}

void rt_ranks_close(k_ranks *k, ampc_status status)
{
    rt_ranks *r = (rt_ranks *)k;
    if (!r) return;
    char *all = malloc((size_t)k->count), here = 1; /* closing waits without limit, so the ranks meet before it */
    if (status == AMPC_OK && !r->failed && all && rt_ranks_all_gather(k, &here, all, 1) == AMPC_OK) {
        rt_notices_close(r);
        r->mpi->close();
    } else {
        some_failed = true;
        if (!r->failed) rt_ranks_lost(r, k->index, false);
        rt_notices_leave(r, r->blamed, r->silent);
        rt_peers_leave(&r->peers);
    }
    free(all);
    release(r);
}

bool rt_ranks_failed(void) { return some_failed; }

const char *rt_ranks_host(const k_ranks *k, int index) { return ((const rt_ranks *)k)->peers.each[index].place.host; }
