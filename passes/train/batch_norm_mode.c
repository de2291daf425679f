/* batch_norm_mode.c - whether BatchNormalization nodes use batch or running statistics. */
#include "passes/train/batch_norm_mode.h"

static void set_mode(ir_node *n, bool training) { ir_set_bool(n, IR_ATTR(batch_norm, training), training); }

/* What reads the new statistic, such as the next use of the same module, reads the old one. */
static void keep_statistic(ir_node *n, int slot, int fresh)
{
    if (ir_value_used(ir_out(n, fresh))) ir_value_replace(ir_out(n, fresh), ir_in(n, slot));
}

void batch_norm_set_eval(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next) {
        if (n->op != IR_OP_batch_norm) continue;
        set_mode(n, false);
        keep_statistic(n, IR_IN(batch_norm, mean), IR_OUT(batch_norm, mean_out));
        keep_statistic(n, IR_IN(batch_norm, var), IR_OUT(batch_norm, var_out));
    }
}

static bool has_stored_statistics(const ir_node *n)
{
    return ir_in(n, IR_IN(batch_norm, mean))->kind == IR_VALUE_STORAGE &&
           ir_in(n, IR_IN(batch_norm, var))->kind == IR_VALUE_STORAGE;
}

static bool has_frozen_statistics(const ir_node *n, const compile_options *o)
{
    return pass_match(&o->freeze, ir_in(n, IR_IN(batch_norm, mean))->name) ||
           pass_match(&o->freeze, ir_in(n, IR_IN(batch_norm, var))->name);
}

static void remove_store(ir_graph *g, const ir_value *fresh)
{
    for (ir_node *n = ir_first_store(g), *next; n; n = next) {
        next = ir_next_store(n);
        if (ir_in(n, 1) == fresh) ir_node_remove(n);
    }
}

void batch_norm_freeze(ir_graph *g, const compile_options *o)
{
    for (ir_node *n = g->first; n; n = n->next) {
        if (n->op != IR_OP_batch_norm || !has_frozen_statistics(n, o)) continue;
        set_mode(n, false);
        remove_store(g, ir_out(n, IR_OUT(batch_norm, mean_out)));
        remove_store(g, ir_out(n, IR_OUT(batch_norm, var_out)));
    }
}

static void make_state(ir_storage *s)
{
    s->kind = IR_STATE;
    s->frozen = false;
    s->rule = IR_RULE_default;
}

static ir_node *find_store(const ir_value *state)
{
    for (const ir_use *u = state->first_use; u; u = u->next)
        if (ir_op_has(u->user->op, IR_STORES) && u->index == 0) return u->user;
    return NULL;
}

/* Stores the new value of a statistic. If the model uses a module several times, each use continues from the statistics
 * of the previous one. */
static void move_statistic(ir_graph *g, ir_node *n, int slot, int fresh, diag *d)
{
    ir_storage *s = ir_in(n, slot)->storage;
    ir_node *store = find_store(ir_in(n, slot));
    make_state(s);
    if (store) {
        ir_node_set_input(n, slot, ir_in(store, 1));
        ir_node_set_input(store, 1, ir_out(n, fresh));
        return;
    }
    ir_builder b = ir_builder_at_end(g, d);
    b.phase = IR_UPDATE;
    b.loc = n->loc;
    ir_store(&b, s, ir_out(n, fresh));
}

void batch_norm_set_train(ir_graph *g, const compile_options *o, diag *d)
{
    for (ir_node *n = g->first; n; n = n->next) {
        if (n->op != IR_OP_batch_norm || n->attr[IR_ATTR(batch_norm, training)].i) continue;
        if (!has_stored_statistics(n) || has_frozen_statistics(n, o)) continue;
        set_mode(n, true);
        move_statistic(g, n, IR_IN(batch_norm, mean), IR_OUT(batch_norm, mean_out), d);
        move_statistic(g, n, IR_IN(batch_norm, var), IR_OUT(batch_norm, var_out), d);
    }
}

void batch_norm_note_fixed(const ir_graph *g, const compile_options *o, diag *d)
{
    int fixed = 0, all = 0;
    for (const ir_node *n = g->first; n && o->mode == PASS_MODE_DEFAULT; n = n->next) {
        if (n->op != IR_OP_batch_norm || !has_stored_statistics(n)) continue;
        all++;
        fixed += !n->attr[IR_ATTR(batch_norm, training)].i && !has_frozen_statistics(n, o);
    }
    if (fixed)
        diag_note(d,
                  DIAG_USE(DIAG_FILE(ir_module_source(g->module)), OPTION_mode, .value = "train",
                           .purpose = "for batch statistics, or file to suppress this note"),
                  "%d of %d BatchNormalization nodes are in evaluation mode in the file and train with its running "
                  "statistics",
                  fixed, all);
}

void batch_norm_note_absent(const ir_graph *g, diag *d)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_batch_norm) return;
    diag_note(d, DIAG_FILE(ir_module_source(g->module)),
              "training mode changes nothing: the model has no BatchNormalization, and Dropout is as in the file");
}
