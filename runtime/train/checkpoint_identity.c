/* checkpoint_identity.c - hashes of a module and of its network, and a description of its optimizer. */
#include "runtime/train/checkpoint_identity.h"

#include "ir/base/text_buffer.h"
#include "ir/ops/number.h"
#include "runtime/backend/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void hash_text(XXH3_state_t *state, const char *text) { XXH3_128bits_update(state, text, strlen(text) + 1); }

static void hash_storage(XXH3_state_t *state, const ir_module *m, const ir_storage *s, arena *a)
{
    uint8_t kind = (uint8_t)s->kind;
    XXH3_128bits_update(state, &kind, 1);
    hash_text(state, s->name);
    hash_text(state, ir_type_print(m, &s->type, a));
    if (s->kind == IR_CONST && s->type.rank == 0 && s->data.kind == IR_DATA_INLINE)
        XXH3_128bits_update(state, s->data.bytes, ir_dtype_size(s->type.dtype));
}

static void hash_graph(XXH3_state_t *state, const ir_module *m, const ir_graph *g, arena *a)
{
    hash_text(state, g->owner ? "" : g->name);
    for (size_t i = 0; i < g->inputs.count; i++) {
        hash_text(state, g->inputs.items[i]->name);
        hash_text(state, ir_type_print(m, &g->inputs.items[i]->type, a));
    }
    for (const ir_node *n = g->first; n; n = n->next) hash_text(state, ir_print_node(n, a));
}

static void digits_of(XXH128_hash_t h, char hash[RT_HASH_TEXT])
{
    snprintf(hash, RT_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

typedef void hash_content(XXH3_state_t *state, const ir_module *m, arena *a);

static bool hash_guarded(XXH3_state_t *state, const ir_module *m, hash_content *content, arena *a)
{
    jmp_buf guard;
    if (setjmp(guard)) return false;
    arena_set_guard(a, &guard);
    XXH3_128bits_reset(state);
    content(state, m, a);
    return true;
}

static ampc_status hash_module(const ir_module *m, hash_content *content, diag *d, char hash[RT_HASH_TEXT])
{
    arena *a = arena_new(0);
    XXH3_state_t *state = XXH3_createState();
    const bool done = a && state && hash_guarded(state, m, content, a);
    if (done) digits_of(XXH3_128bits_digest(state), hash);
    XXH3_freeState(state);
    arena_free(a);
    return done ? AMPC_OK : rt_no_memory(d);
}

static void hash_everything(XXH3_state_t *state, const ir_module *m, arena *a)
{
    for (size_t i = 0; i < m->storage.count; i++) hash_storage(state, m, m->storage.items[i], a);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) hash_graph(state, m, g, a);
}

ampc_status rt_module_hash(const ir_module *m, diag *d, char hash[RT_HASH_TEXT])
{
    if (m->hash_for_one) {
        snprintf(hash, RT_HASH_TEXT, "%s", m->hash_for_one);
        return AMPC_OK;
    }
    return hash_module(m, hash_everything, d, hash);
}

/* ---- the network ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Hashes the texts in alphabetical order, equal ones once. */
static void hash_set(XXH3_state_t *state, const char **texts, size_t n)
{
    if (n) qsort(texts, n, sizeof *texts, compare_texts);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(texts[i], texts[i - 1]) != 0) hash_text(state, texts[i]);
}

static bool is_of_network(const ir_storage *s)
{
    return s->kind == IR_PARAM || (s->kind == IR_STATE && s->role == IR_STATE_buffer);
}

/* Names and operator types are sets, because the precision decides which equal nodes are merged, and the order in which
 * states are added. Casts are left out: whether one remains depends on the types. */
static void hash_network(XXH3_state_t *state, const ir_module *m, arena *a)
{
    size_t nodes = 0, n = 0;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) nodes += g->node_ids;
    const char **texts = arena_array(a, nodes + m->storage.count + 1, sizeof *texts);
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        if (is_of_network(s)) texts[n++] = arena_printf(a, "%s:%s", s->name, ir_type_print(m, &s->type, a));
    }
    hash_set(state, texts, n);
    n = 0;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *node = g->first; node; node = node->next)
            if (node->loc.op && !ir_op_has(node->op, IR_CONVERTS)) texts[n++] = node->loc.op;
    hash_set(state, texts, n);
    const char *kinds = "";
    for (size_t i = 0; i < m->training.losses.count; i++)
        kinds = arena_printf(a, "%s%s%s", kinds, i ? "+" : "", m->training.losses.items[i].kind);
    hash_text(state, kinds);
}

ampc_status rt_network_hash(const ir_module *m, diag *d, char hash[RT_HASH_TEXT])
{
    return hash_module(m, hash_network, d, hash);
}

/* ---- the optimizer ---- */

static void print_update(const ir_node *n, text_buffer *t)
{
    const ir_op_info *info = ir_op_get(n->op);
    text_put(t, info->name);
    for (int i = 0; i < info->n_attr; i++) {
        char number[IR_NUMBER_SIZE];
        const ir_slot *slot = &info->attr[i];
        if (slot->kind == IR_SLOT_DOUBLE || slot->kind == IR_SLOT_FLOAT) {
            ir_float_print(number, IR_f64, n->attr[i].f);
            text_add(t, ",%s=%s", slot->name, number);
        } else if (slot->kind == IR_SLOT_INT || slot->kind == IR_SLOT_BOOL)
            text_add(t, ",%s=%" PRId64, slot->name, n->attr[i].i);
    }
}

void rt_optimizer_text(const ir_module *m, char text[RT_OPTIMIZER_TEXT])
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train_step);
    text_buffer t = text_in(text, RT_OPTIMIZER_TEXT);
    for (const ir_node *n = g ? g->first : NULL; n; n = n->next) {
        char update[RT_OPTIMIZER_TEXT];
        text_buffer one = TEXT_IN(update);
        if (!ir_op_has(n->op, IR_UPDATES)) continue;
        print_update(n, &one);
        if (!strstr(text, update)) text_add_item(&t, "; ", update);
    }
}
