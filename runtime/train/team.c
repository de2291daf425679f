/* team.c - agreement of ranks; see the header. */
#include "runtime/train/team.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { HOST = 64 };

/* What each rank tells the others at the start. */
typedef struct place {
    char host[HOST];
    cpu_set_t processors;
} place;

struct rt_team {
    k_ranks *ranks;
    rt_reductions session; /* the ranks of the session */
    place *places;         /* by rank */
    bool lost;             /* no collective call is possible any more */
    bool repeats;
};

static ampc_status check(rt_team *p, ampc_status s, diag *d)
{
    if (s == AMPC_OK) return s;
    p->lost = true;
    return diag_error(d, s, DIAG_NOWHERE, "%s", p->ranks->error);
}

static void find_place(place *out)
{
    memset(out, 0, sizeof *out);
    gethostname(out->host, sizeof out->host - 1);
    sched_getaffinity(0, sizeof out->processors, &out->processors);
}

ampc_status rt_team_open(k_ranks *r, diag *d, rt_team **out)
{
    place mine;
    *out = NULL;
    if (!r || r->count == 1) return AMPC_OK;
    rt_team *p = rt_alloc(1, sizeof *p);
    if (!p) return rt_no_memory(d);
    *p = (rt_team){.ranks = r, .places = rt_alloc((size_t)r->count, sizeof *p->places)};
    rt_reductions_open(&p->session, r);
    find_place(&mine);
    ampc_status s = p->places ? check(p, r->all_gather(r, &mine, p->places, sizeof mine), d) : rt_no_memory(d);
    if (s == AMPC_OK) *out = p;
    else rt_team_close(p);
    return s;
}

void rt_team_close(rt_team *p)
{
    if (!p) return;
    rt_free(p->places);
    rt_free(p);
}

k_ranks *rt_team_ranks(rt_team *p) { return p ? &p->session.table : NULL; }
void rt_team_trace(rt_team *p, rt_trace *trace)
{
    if (p) p->session.trace = trace;
}
bool rt_team_first(const rt_team *p) { return !p || p->ranks->index == 0; }
const char *rt_team_host(const rt_team *p, int rank) { return p->places[rank].host; }
void rt_team_lose(rt_team *p)
{
    if (p) p->lost = true;
}
bool rt_team_repeats(const rt_team *p) { return p && p->repeats; }

static const place *own_place(const rt_team *p) { return &p->places[p->ranks->index]; }

static bool is_here(const rt_team *p, int rank) { return strcmp(p->places[rank].host, own_place(p)->host) == 0; }

int rt_team_local(const rt_team *p)
{
    int before = 0;
    for (int i = 0; p && i < p->ranks->index; i++) before += is_here(p, i);
    return before;
}

int rt_team_threads(const rt_team *p)
{
    int sharing = 0;
    const int own = omp_get_num_procs();
    for (int i = 0; p && i < p->ranks->count; i++) {
        cpu_set_t both;
        CPU_AND(&both, &p->places[i].processors, &own_place(p)->processors);
        sharing += is_here(p, i) && CPU_COUNT(&both) > 0;
    }
    return sharing && own / sharing > 0 ? own / sharing : 1;
}

/* ---- failures ---- */

typedef struct failure {
    int status;
    char text[500]; /* the first error, for the other ranks */
} failure;

/* Reports the first failure among all ranks, unless it is that of this rank. */
static ampc_status report(rt_team *p, ampc_status mine, const failure *all, diag *d)
{
    int first = 0;
    while (all[first].status == AMPC_OK) first++;
    const char *text = diag_message_text(diag_first_error(d));
    if (mine != AMPC_OK) {
        p->repeats = !rt_team_first(p) && first == 0 && strstr(all[0].text, text);
        return mine;
    }
    p->repeats = !rt_team_first(p); /* the first rank has failed, or says the same */
    return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE, "rank %d on %s has ended with an error", first,
                      rt_team_host(p, first));
}

static ampc_status fail(rt_team *p, ampc_status mine, diag *d)
{
    failure own = {mine, ""}, *all = rt_alloc((size_t)p->ranks->count, sizeof *all);
    if (!all) return mine != AMPC_OK ? mine : rt_no_memory(d);
    snprintf(own.text, sizeof own.text, "%s", mine == AMPC_OK ? "" : diag_first_error(d));
    ampc_status s = p->ranks->all_gather(p->ranks, &own, all, sizeof own);
    s = s == AMPC_OK ? report(p, mine, all, d) : mine != AMPC_OK ? mine : check(p, s, d);
    p->lost = true;
    rt_free(all);
    return s;
}

ampc_status rt_team_agree(rt_team *p, ampc_status mine, unsigned *flags, diag *d)
{
    float any[RT_TEAM_FLAGS + 1];
    if (!p || p->lost || p->session.table.lost) return mine;
    for (int i = 0; i < RT_TEAM_FLAGS; i++) any[i] = flags && (*flags >> i & 1);
    any[RT_TEAM_FLAGS] = mine != AMPC_OK;
    const double began = rt_trace_now();
    const ampc_status s = p->ranks->all_reduce(p->ranks, any, RT_TEAM_FLAGS + 1, IR_f32, K_REDUCED_max, false);
    rt_trace_span(p->session.trace, RT_LANE_REDUCTIONS, "wait for the other ranks", began);
    if (s != AMPC_OK) {
        p->lost = true;
        return mine != AMPC_OK ? mine : check(p, s, d);
    }
    if (any[RT_TEAM_FLAGS] > 0) return fail(p, mine, d);
    for (int i = 0; flags && i < RT_TEAM_FLAGS; i++) *flags |= (unsigned)(any[i] > 0) << i;
    return AMPC_OK;
}

/* ---- data ---- */

ampc_status rt_team_times(rt_team *p, rt_reduction_time *times, diag *d)
{
    return check(p, p->ranks->all_gather(p->ranks, &p->session.time, times, sizeof *times), d);
}

ampc_status rt_team_copy(rt_team *p, void *data, size_t bytes, diag *d)
{
    return p ? check(p, p->ranks->broadcast(p->ranks, data, bytes, 0), d) : AMPC_OK;
}

/* The facts as "NAME\0VALUE\0..", [bytes], of which only the first `used` are. */
static char *pack(const rt_team_fact *facts, size_t n, size_t *used)
{
    *used = 0;
    for (size_t i = 0; i < n; i++) *used += strlen(facts[i].name) + strlen(facts[i].value) + 2;
    char *text = rt_alloc_block(*used + 1), *at = text;
    for (size_t i = 0; text && i < n; i++) {
        at = stpcpy(at, facts[i].name) + 1;
        at = stpcpy(at, facts[i].value) + 1;
    }
    return text;
}

/* The value of the name; NULL: the text has none. */
static const char *find_value(const char *text, size_t used, const char *name)
{
    for (const char *at = text; at < text + used;) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

/* Reports the first fact of `a` that b has not, if there is one. */
static ampc_status report_difference(const rt_team *p, const char *a, size_t n_a, int rank_a, const char *b, size_t n_b,
                                     int rank_b, diag *d)
{
    for (const char *at = a; at < a + n_a;) {
        const char *value = at + strlen(at) + 1, *other = find_value(b, n_b, at);
        if (!other || strcmp(value, other) != 0)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "the ranks differ: %s is %s on rank %d (%s), but %s on rank %d (%s)", at,
                              *value ? value : "not set", rank_a, rt_team_host(p, rank_a),
                              other && *other ? other : "not set", rank_b, rt_team_host(p, rank_b));
        at = value + strlen(value) + 1;
    }
    return AMPC_OK;
}

static ampc_status compare_texts(rt_team *p, const char *own, const uint64_t *sizes, diag *d)
{
    k_ranks *r = p->ranks;
    size_t most = 0;
    for (int i = 0; i < r->count; i++)
        if (sizes[2 * i] > most) most = (size_t)sizes[2 * i];
    char *mine = rt_alloc(most + 1, 1), *all = rt_alloc((size_t)r->count, most + 1);
    ampc_status s = mine && all ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK) memcpy(mine, own, (size_t)sizes[2 * r->index]);
    if (s == AMPC_OK) s = check(p, r->all_gather(r, mine, all, most + 1), d);
    for (int i = 1; s == AMPC_OK && i < r->count; i++) {
        const char *text = all + (size_t)i * (most + 1);
        s = report_difference(p, text, (size_t)sizes[2 * i], i, all, (size_t)sizes[0], 0, d);
        if (s == AMPC_OK) s = report_difference(p, all, (size_t)sizes[0], 0, text, (size_t)sizes[2 * i], i, d);
        if (s == AMPC_USAGE) p->lost = true, p->repeats = !rt_team_first(p);
    }
    rt_free(mine);
    rt_free(all);
    return s;
}

ampc_status rt_team_compare(rt_team *p, const rt_team_fact *facts, size_t n, diag *d)
{
    size_t used;
    if (!p) return AMPC_OK;
    char *own = pack(facts, n, &used);
    uint64_t mine[2] = {used, own ? XXH3_64bits(own, used) : 0};
    uint64_t *all = rt_alloc((size_t)p->ranks->count, sizeof mine); /* sizes and hashes */
    ampc_status s = own && all ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK) s = check(p, p->ranks->all_gather(p->ranks, mine, all, sizeof mine), d);
    bool equal = true;
    for (int i = 1; s == AMPC_OK && i < p->ranks->count; i++) equal &= memcmp(all, all + 2 * i, sizeof mine) == 0;
    if (s == AMPC_OK && !equal) s = compare_texts(p, own, all, d);
    rt_free(own);
    rt_free(all);
    return s;
}
