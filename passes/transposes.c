/* transposes.c - matmuls that read a transposed matrix read the matrix itself, with trans_a or trans_b.
 *
 * Exports without constant folding spell a Linear as MatMul(x, Transpose(W)), and attention transposes keys. Without
 * this pass, a training step would transpose each weight and its gradient, and the plan would keep a low-precision copy
 * of the transposed weight, which the update cannot write. A cast between the two moves to the matrix.
 *
 *   before  %t   = transpose @w {perm=[1,0]} : f32[128,64]   after  %w.h = cast @w : f16[64,128]
 *           %t.h = cast %t : f16[128,64]                            %y   = matmul %x, %w.h {trans_b=true}
 *           %y   = matmul %x, %t.h
 *
 * Requires: forward phase only. Another runtime has the transpose anyway, as an operator with the model's name. */
#include "passes/pass.h"

/* Whether the node only swaps the last two dimensions. */
static bool swaps_last_two(const ir_node *n)
{
    if (!n || n->op != IR_OP_transpose) return false;
    const int rank = ir_in(n, 0)->type.rank;
    const int64_t *perm = n->attr[IR_ATTR(transpose, perm)].list.items;
    for (int i = 0; i < rank - 2; i++)
        if (perm[i] != i) return false;
    return rank >= 2 && perm[rank - 2] == rank - 1;
}

static bool is_inserted_cast(const ir_node *n) { return n && ir_op_has(n->op, IR_CONVERTS) && !n->loc.op; }

/* The cast of the matrix instead of its transposed form. `casts`, by node id, has those that already exist. */
static ir_value *move_cast(ir_node *cast, ir_value *matrix, ir_value **casts, diag *d)
{
    ir_value **moved = &casts[cast->id];
    if (*moved) return *moved;
    ir_builder b = ir_builder_before(cast, d);
    *moved = ir_cast(&b, matrix, ir_out(cast, 0)->type.dtype);
    if (!*moved) return NULL;
    const char *suffix = ir_dtype_is_low((*moved)->type.dtype) ? "h" : "s";
    ir_value_rename(*moved, arena_printf(matrix->graph->module->arena, "%s.%s", matrix->name, suffix));
    (*moved)->def->note = cast->note;
    return *moved;
}

static void read_in_place(ir_node *matmul, int operand, int flag, ir_value **casts, diag *d)
{
    ir_node *def = ir_def(ir_in(matmul, operand)), *cast = is_inserted_cast(def) ? def : NULL;
    const ir_node *transpose = cast ? ir_def(ir_in(cast, 0)) : def;
    if (!swaps_last_two(transpose)) return;
    ir_value *matrix = ir_in(transpose, 0);
    if (cast) matrix = move_cast(cast, matrix, casts, d);
    if (!matrix) return;
    ir_node_set_input(matmul, operand, matrix);
    ir_set_bool(matmul, flag, !matmul->attr[flag].i);
}

ampc_status pass_transposes(ir_module *m, compile *c)
{
    if (c->options->plain_runtime || c->options->draws) return AMPC_OK;
    arena *a = pass_scratch_new(m);
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        ir_graph_renumber(g);
        ir_value **casts = arena_array(a, g->node_ids + 1, sizeof *casts);
        for (ir_node *n = g->first; n; n = n->next) {
            if (n->op != IR_OP_matmul) continue;
            read_in_place(n, IR_IN(matmul, a), IR_ATTR(matmul, trans_a), casts, c->diag);
            read_in_place(n, IR_IN(matmul, b), IR_ATTR(matmul, trans_b), casts, c->diag);
        }
        pass_remove_dead(g);
    }
    arena_free(a);
    return diag_status(c->diag);
}
