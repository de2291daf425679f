/* ranks_reduce.c - sums, and copies, of data of all ranks.
 *
 * The elements are divided among the nodes, and those of a node among its ranks. A rank adds its part: the windows of
 * its node are read directly; from each other node it receives the sums of that node's ranks, by one message for each
 * of the largest subtrees of the additions that are on that node alone (rt_ranks_span). The result goes back the same
 * way. */
#include "runtime/backend/ranks_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MESSAGES_BYTES = 64 << 20, /* that are sent at a time, by and to all */
    BLOCK_BYTES = 64 << 10,
};

typedef struct reduction {
    rt_ranks *r;
    const rt_ranks_order *order;
    char *own; /* the elements of this rank, in its window if its node has others */
    int64_t n;
    ir_dtype type;
    k_reduced by;
    int node, local, locals; /* of this rank: its node, the place in it, and how many are on it */
} reduction;

static int node_size(const rt_ranks *r, int node) { return r->node_first[node + 1] - r->node_first[node]; }
static int rank_at(const rt_ranks *r, int node, int local) { return r->node_ranks[r->node_first[node] + local]; }
/* The rank of a node that talks to place `local` of another one. */
static int partner(const rt_ranks *r, int node, int local) { return rank_at(r, node, local % node_size(r, node)); }

static int64_t part_of(const reduction *x, int node, int local, int64_t *first)
{
    int64_t start;
    const int64_t n = k_rank_part(x->n, node, x->r->nodes, &start),
                  count = k_rank_part(n, local, node_size(x->r, node), first);
    *first += start;
    return count;
}

static char *elements_of(const reduction *x, int rank, int64_t first)
{
    char *all = rank == x->r->table.index ? x->own : rt_peer_window(&x->r->peers.each[rank]);
    return all + (size_t)first * ir_dtype_size(x->type);
}

/* Lets the additions read the elements from `first` on of this node. */
static void use_windows(const reduction *x, int64_t first)
{
    for (int p = 0; p < x->r->table.count; p++) {
        const int rank = x->order->ranks[p];
        if (x->r->peers.each[rank].place.node != x->node) continue;
        x->r->terms[p] = (rt_ranks_term){.last = p + 1, .data = elements_of(x, rank, first)};
    }
}

static ampc_status make_scratch(const reduction *x)
{
    rt_ranks *r = x->r;
    int64_t first, elements = 0, own = 0, others = 0;
    for (int s = 0; s < x->order->span_count; s++) *(x->order->spans[s].node == x->node ? &own : &others) += 1;
    if (r->nodes > 1) elements = others * part_of(x, x->node, x->local, &first);
    for (int h = 0; h < r->nodes; h++)
        for (int l = x->local; h != x->node && l < node_size(r, h); l += x->locals)
            elements += own * part_of(x, h, l, &first);
    const size_t bytes = (size_t)elements * ir_dtype_size(x->type);
    if (bytes <= r->scratch_bytes) return AMPC_OK;
    free(r->scratch);
    r->scratch = malloc(bytes);
    r->scratch_bytes = r->scratch ? bytes : 0;
    return r->scratch ? AMPC_OK : rt_ranks_no_memory(r);
}

/* Sends the sums over this node of the part of another one's rank, made at `at`. */
static ampc_status send_sums(const reduction *x, int node, int local, char **at)
{
    rt_ranks *r = x->r;
    int64_t first;
    const int64_t n = part_of(x, node, local, &first);
    const size_t bytes = (size_t)n * ir_dtype_size(x->type);
    use_windows(x, first);
    for (int s = 0; n && s < x->order->span_count; s++) {
        const rt_ranks_span *span = &x->order->spans[s];
        if (span->node != x->node) continue;
        const void *sums = r->terms[span->first].data;
        if (span->last > span->first + 1) {
            rt_ranks_sum(r->terms, span->first, span->last, *at, n, x->type, x->by);
            sums = *at;
            *at += bytes;
        }
        const ampc_status status = rt_ranks_send(r, sums, bytes, rank_at(r, node, local));
        if (status != AMPC_OK) return status;
    }
    return AMPC_OK;
}

/* Exchanges sums between nodes, and lets the additions read those of the part of this rank. */
static ampc_status gather_sums(const reduction *x)
{
    rt_ranks *r = x->r;
    int64_t first;
    const size_t bytes = (size_t)part_of(x, x->node, x->local, &first) * ir_dtype_size(x->type);
    ampc_status status = make_scratch(x);
    char *at = r->scratch, *received = at;
    for (int s = 0; status == AMPC_OK && s < x->order->span_count; s++) {
        const rt_ranks_span *span = &x->order->spans[s];
        if (span->node == x->node) continue;
        status = rt_ranks_receive(r, at, bytes, partner(r, span->node, x->local));
        at += bytes;
    }
    for (int h = 0; h < r->nodes; h++)
        for (int l = x->local; h != x->node && l < node_size(r, h) && status == AMPC_OK; l += x->locals)
            status = send_sums(x, h, l, &at);
    if (status == AMPC_OK) status = rt_ranks_finish(r);
    if (status != AMPC_OK) return status;
    use_windows(x, first);
    for (int s = 0; s < x->order->span_count; s++) {
        const rt_ranks_span *span = &x->order->spans[s];
        if (span->node == x->node) continue;
        r->terms[span->first] = (rt_ranks_term){.last = span->last, .data = received};
        received += bytes;
    }
    return AMPC_OK;
}

static void copy_to_node(const reduction *x, int64_t first, int64_t n)
{
    const char *from = elements_of(x, x->r->table.index, first);
    for (int l = 0; l < x->locals; l++) {
        const int rank = rank_at(x->r, x->node, l);
        if (rank != x->r->table.index) memcpy(elements_of(x, rank, first), from, (size_t)n * ir_dtype_size(x->type));
    }
}

static void add_part(const reduction *x, int64_t first, int64_t n)
{
    const int64_t block = BLOCK_BYTES / (int64_t)ir_dtype_size(x->type);
    rt_ranks *r = x->r;
    for (int64_t at = 0; at < n; at += block) {
        const int64_t count = n - at < block ? n - at : block;
        rt_ranks_sum(r->terms, 0, r->table.count, elements_of(x, r->table.index, first + at), count, x->type, x->by);
        copy_to_node(x, first + at, count);
        for (int p = 0; p < r->table.count; p++)
            if (r->terms[p].data) r->terms[p].data = (const char *)r->terms[p].data + BLOCK_BYTES;
    }
}

/* Sends the part of this rank to all nodes, and copies those of the others to its own. */
static ampc_status spread(const reduction *x)
{
    rt_ranks *r = x->r;
    int64_t first;
    const int64_t n = part_of(x, x->node, x->local, &first);
    const size_t size = ir_dtype_size(x->type);
    ampc_status status = AMPC_OK;
    for (int h = 0; h < r->nodes; h++) {
        if (h == x->node) continue;
        for (int l = x->local; l < node_size(r, h) && status == AMPC_OK; l += x->locals) {
            int64_t start;
            const int64_t count = part_of(x, h, l, &start);
            status = rt_ranks_receive(r, elements_of(x, r->table.index, start), (size_t)count * size, rank_at(r, h, l));
        }
        if (status != AMPC_OK) return status;
        status = rt_ranks_send(r, elements_of(x, r->table.index, first), (size_t)n * size, partner(r, h, x->local));
    }
    if (status == AMPC_OK) status = rt_ranks_finish(r);
    for (int h = 0; h < r->nodes && status == AMPC_OK; h++)
        for (int l = x->local; h != x->node && l < node_size(r, h); l += x->locals) {
            int64_t start;
            const int64_t count = part_of(x, h, l, &start);
            copy_to_node(x, start, count);
        }
    return status;
}

static ampc_status reduce(const reduction *x)
{
    rt_ranks *r = x->r;
    int64_t first;
    const int64_t n = part_of(x, x->node, x->local, &first);
    memset(r->terms, 0, (size_t)r->table.count * sizeof *r->terms);
    ampc_status status = rt_ranks_barrier(r);
    if (status == AMPC_OK && r->nodes > 1) status = gather_sums(x);
    else if (status == AMPC_OK) use_windows(x, first);
    if (status != AMPC_OK) return status;
    add_part(x, first, n);
    if (r->nodes > 1) status = spread(x);
    return status == AMPC_OK ? rt_ranks_barrier(r) : status;
}

void *rt_ranks_stage(k_ranks *k, size_t bytes)
{
    rt_ranks *r = (rt_ranks *)k;
    const rt_peer *mine = &r->peers.each[k->index];
    if (r->failed || node_size(r, mine->place.node) == 1 || bytes > RT_RANK_WINDOW) return NULL;
    if (rt_peers_grow(&r->peers, bytes)) return rt_peer_window(mine);
    rt_ranks_no_memory(r); /* the next all_reduce says so */
    return NULL;
}

ampc_status rt_ranks_all_reduce(k_ranks *k, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree)
{
    rt_ranks *r = (rt_ranks *)k;
    const rt_peer *mine = &r->peers.each[k->index];
    const int node = mine->place.node, locals = node_size(r, node);
    const size_t size = ir_dtype_size(type);
    const bool staged = locals > 1 && data == rt_peer_window(mine);
    k->counts.reductions++;
    k->counts.reduced += n * (int64_t)size;
    const int64_t most = (int64_t)((r->nodes > 1 ? MESSAGES_BYTES : RT_RANK_WINDOW) / size);
    for (int64_t at = 0; at < n && !r->failed; at += most) {
        const int64_t count = n - at < most ? n - at : most;
        char *here = (char *)data + (size_t)at * size;
        reduction x = {.r = r,
                       .order = &r->orders[tree],
                       .own = here,
                       .n = count,
                       .type = type,
                       .by = by,
                       .node = node,
                       .local = r->local,
                       .locals = locals};
        if (locals > 1 && !staged) {
            if (!rt_peers_grow(&r->peers, (size_t)count * size)) return rt_ranks_no_memory(r);
            x.own = rt_peer_window(mine);
            memcpy(x.own, here, (size_t)count * size);
        }
        const ampc_status status = reduce(&x);
        if (status != AMPC_OK) return status;
        if (x.own != here) memcpy(here, x.own, (size_t)count * size);
    }
    return r->failed ? r->status : AMPC_OK;
}

ampc_status rt_ranks_all_gather(k_ranks *k, const void *mine, void *all, size_t bytes)
{
    rt_ranks *r = (rt_ranks *)k;
    for (size_t at = 0; at < bytes && !r->failed; at += MESSAGES_BYTES) {
        const size_t count = bytes - at < MESSAGES_BYTES ? bytes - at : MESSAGES_BYTES;
        ampc_status status = AMPC_OK;
        for (int i = 0; i < k->count && status == AMPC_OK; i++)
            if (i != k->index) status = rt_ranks_receive(r, (char *)all + (size_t)i * bytes + at, count, i);
        for (int i = 0; i < k->count && status == AMPC_OK; i++)
            if (i != k->index) status = rt_ranks_send(r, (const char *)mine + at, count, i);
        if (status == AMPC_OK) status = rt_ranks_finish(r);
        if (status != AMPC_OK) return status;
    }
    if (bytes) memmove((char *)all + (size_t)k->index * bytes, mine, bytes);
    return r->failed ? r->status : AMPC_OK;
}

/* The root sends each rank a part, and the ranks send each other theirs. */
static ampc_status broadcast(rt_ranks *r, char *data, size_t bytes, int root)
{
    const int index = r->table.index, count = r->table.count;
    ampc_status status = AMPC_OK;
    int64_t first, n = k_rank_part((int64_t)bytes, index, count, &first);
    if (index != root) status = rt_ranks_receive(r, data + first, (size_t)n, root);
    for (int i = 0; i < count && index == root && status == AMPC_OK; i++) {
        n = k_rank_part((int64_t)bytes, i, count, &first);
        if (i != root) status = rt_ranks_send(r, data + first, (size_t)n, i);
    }
    if (status == AMPC_OK) status = rt_ranks_finish(r);
    for (int i = 0; i < count && status == AMPC_OK && index != root; i++) {
        n = k_rank_part((int64_t)bytes, i, count, &first);
        if (i != index) status = rt_ranks_receive(r, data + first, (size_t)n, i);
    }
    n = k_rank_part((int64_t)bytes, index, count, &first);
    for (int i = 0; i < count && status == AMPC_OK; i++)
        if (i != index && i != root) status = rt_ranks_send(r, data + first, (size_t)n, i);
    return status == AMPC_OK ? rt_ranks_finish(r) : status;
}

ampc_status rt_ranks_broadcast(k_ranks *k, void *data, size_t bytes, int root)
{
    rt_ranks *r = (rt_ranks *)k;
    for (size_t at = 0; at < bytes && !r->failed; at += MESSAGES_BYTES) {
        const size_t count = bytes - at < MESSAGES_BYTES ? bytes - at : MESSAGES_BYTES;
        const ampc_status status = broadcast(r, (char *)data + at, count, root);
        if (status != AMPC_OK) return status;
    }
    return r->failed ? r->status : AMPC_OK;
}
