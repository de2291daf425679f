/* roles.c - the table of roles.def, and lookup by role. */
#include "ir/graph/ir.h"

#include <string.h>

const char *const ir_graph_words[IR_GRAPH_ROLE_COUNT] = {
#define GRAPH(word) #word,
#include "ir/graph/roles.def"
};

const char *const ir_input_words[IR_INPUT_ROLE_COUNT] = {
#define INPUT(word) #word,
#include "ir/graph/roles.def"
};

const char *const ir_state_words[IR_STATE_ROLE_COUNT] = {
#define STATE(word, dtype, elements, of, skipping, key) #word,
#include "ir/graph/roles.def"
};

const char *const ir_output_words[IR_OUTPUT_ROLE_COUNT] = {
#define OUTPUT(word, of, name) #word,
#include "ir/graph/roles.def"
};

#define IR_any IR_NO_DTYPE
#define MOVES true
#define KEEPS false
const ir_state_role_info ir_state_roles[IR_STATE_ROLE_COUNT] = {
#define STATE(word, dtype, elements, of, skipping, key) {IR_##dtype, elements, IR_OF_##of, skipping, key},
#include "ir/graph/roles.def"
};

const ir_output_role_info ir_output_roles[IR_OUTPUT_ROLE_COUNT] = {
#define OUTPUT(word, of, name) {IR_OF_##of, name},
#include "ir/graph/roles.def"
};

/* ---- graphs ---------------------------------------------------------------------------------- */

ir_graph *ir_graph_by_role(const ir_module *m, ir_graph_role role)
{
    for (size_t i = 0; i < m->graphs.count; i++)
        if (m->graphs.items[i]->role == role) return m->graphs.items[i];
    return NULL;
}

ir_graph *ir_graph_by_key(const ir_module *m, const char *key)
{
    for (int role = IR_GRAPH_other + 1; role < IR_GRAPH_ROLE_COUNT; role++)
        if (strcmp(ir_graph_words[role], key) == 0) return ir_graph_by_role(m, (ir_graph_role)role);
    return ir_graph_find(m, key);
}

void ir_graph_set_role(ir_graph *g, ir_graph_role role)
{
    g->role = role;
    g->name = ir_graph_words[role];
}

ir_graph *ir_graph_derive(ir_module *m, const ir_graph *g, ir_graph_role role)
{
    ir_graph *copy = ir_graph_clone(m, g, ir_graph_words[role], NULL);
    copy->role = role;
    return copy;
}

/* ---- states ---------------------------------------------------------------------------------- */

ir_storage *ir_state_by_role(const ir_module *m, ir_state_role role)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind == IR_STATE && s->role == role) return s;
    }
    return NULL;
}

const char *ir_state_name(const ir_module *m, ir_state_role role)
{
    const ir_storage *s = ir_state_by_role(m, role);
    return s ? s->name : "";
}

ir_storage *ir_state_new(ir_module *m, ir_state_role role)
{
    const ir_type type = ir_state_role_type(role);
    ir_storage *s = ir_storage_new(m, IR_STATE, ir_state_words[role], &type);
    s->role = role;
    return s;
}

ir_type ir_state_role_type(ir_state_role role)
{
    const ir_state_role_info *info = &ir_state_roles[role];
    return ir_type_make(info->dtype, info->elements != 0, (ir_dim[]){info->elements});
}

bool ir_state_role_allows(ir_state_role role, const ir_type *type)
{
    const ir_type expected = ir_state_role_type(role);
    return expected.dtype == IR_NO_DTYPE || ir_type_equal(&expected, type);
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

ir_value *ir_input_by_role(const ir_graph *g, ir_input_role role)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i]->role == role) return g->inputs.items[i];
    return NULL;
}

ir_node *ir_output_by_role(const ir_graph *g, ir_output_role role)
{
    ir_node *n = ir_first_output(g);
    while (n && n->role != role) n = ir_next_output(n);
    return n;
}
