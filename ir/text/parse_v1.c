/* parse_v1.c - IR text version 1 (ampc 0.1), in which names and meta lines implied roles. */
#include "ir/text/parser.h"

/* "opt.SLOT.PARAM" */
static void assign_slot(const ir_module *m, ir_storage *s)
{
    static const char prefix[] = "opt.";
    const char *slot = s->name + sizeof prefix - 1, *dot;
    if (strncmp(s->name, prefix, sizeof prefix - 1) != 0 || !(dot = strchr(slot, '.'))) return;
    ir_storage *of = ir_storage_find(m, dot + 1);
    if (!of || of->kind != IR_PARAM || of->id > s->id) return;
    s->role = IR_STATE_slot;
    s->slot = arena_strndup(m->arena, slot, (size_t)(dot - slot));
    s->of = of;
}

static void assign_state(const ir_module *m, ir_storage *s)
{
    if (s->kind != IR_STATE) return;
    assign_slot(m, s);
    for (int role = IR_STATE_lr; role <= IR_STATE_rng; role++)
        if (strcmp(s->name, ir_state_words[role]) == 0 && ir_state_role_allows((ir_state_role)role, &s->type))
            s->role = (ir_state_role)role;
}

/* What "grad/w" belongs to, or NULL if the graph has no such value. */
static ir_value *find_of(ir_graph *g, ir_owner of, const char *name)
{
    if (of == IR_OF_INPUT) return ir_graph_find_input(g, name);
    ir_storage *s = ir_storage_find(g->module, name);
    return s && s->kind == (of == IR_OF_PARAM ? IR_PARAM : IR_STATE) ? ir_graph_storage(g, s) : NULL;
}

static void assign_output(ir_node *n, const char *loss, const char *logits)
{
    const char *name = ir_output_name(n);
    for (int role = IR_OUTPUT_found_inf; role < IR_OUTPUT_ROLE_COUNT; role++) {
        const ir_output_role_info *info = &ir_output_roles[role];
        const size_t length = strlen(info->name);
        if (info->of == IR_OF_SEVERAL) continue; /* version 1 has none */
        if (strncmp(name, info->name, length) != 0 || (info->of == IR_OF_ALONE && name[length])) continue;
        n->of = info->of == IR_OF_ALONE ? NULL : find_of(n->graph, info->of, name + length);
        if (info->of == IR_OF_ALONE || n->of) n->role = (ir_output_role)role;
    }
    if (logits && strcmp(name, logits) == 0) n->role = IR_OUTPUT_logits;
    if (loss && strcmp(name, loss) == 0) n->role = IR_OUTPUT_loss;
}

static void assign_graph(ir_graph *g, const char *loss, const char *logits, const char *label)
{
    for (int role = IR_GRAPH_other + 1; role < IR_GRAPH_ROLE_COUNT; role++)
        if (strcmp(g->name, ir_graph_words[role]) == 0) g->role = (ir_graph_role)role;
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) assign_output(n, loss, logits);
    ir_value *input = label ? ir_graph_find_input(g, label) : NULL;
    if (input) input->role = IR_INPUT_label;
}

/* Removes a meta line that version 2 does not have and returns its value. */
static const char *remove_meta(ir_module *m, const char *key)
{
    size_t count = 0;
    const char *value = ir_meta_get(m, key);
    for (size_t i = 0; i < m->meta.count; i++)
        if (strcmp(m->meta.items[i].key, key) != 0) m->meta.items[count++] = m->meta.items[i];
    m->meta.count = count;
    return value;
}

void ir_assign_roles(ir_module *m)
{
    const char *loss = remove_meta(m, ir_output_words[IR_OUTPUT_loss]);
    const char *logits = remove_meta(m, ir_output_words[IR_OUTPUT_logits]);
    const char *label = remove_meta(m, ir_input_words[IR_INPUT_label]);
    for (size_t i = 0; i < m->storage.count; i++) assign_state(m, m->storage.items[i]);
    for (size_t i = 0; i < m->graphs.count; i++) assign_graph(m->graphs.items[i], loss, logits, label);
}
