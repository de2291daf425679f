/* distribute_batch_norm.c - batch normalisation by the statistics of the samples of all ranks.
 *
 *     %y, %m, %v, .. = batch_norm %x, .., @m, @v {training}
 *
 * becomes, with the statistics in f32, or f64 if x is,
 *
 *     _, %a, %b, ..      = batch_norm %x, .. {momentum=0, training}       mean and variance of this rank
 *     %mean              = all_reduce %a {by=mean}
 *     %var               = all_reduce (%b + (%a - %mean)^2) {by=mean}
 *     %y, .., %sm, %sr   = batch_norm %x, .., %mean, %var
 *
 * and the running statistics are computed from these. A mean over ranks counts each by its samples, so it is the one
 * over all samples. The gradient of scale and bias is that of this rank, like that of any parameter. That of x is, with
 * n elements per channel in this rank,
 *
 *     dx = scale r (dy - (all_reduce dbias + h all_reduce dscale) / n)
 *
 * as the gradients are those of the mean loss of this rank, and 1/n is 1/(n of all ranks) over the share.
 *
 * --running-var=unbiased has divided by n - 1 of this rank. With u = share / n, which is 1/(n of all ranks),
 *
 *     %y = div_count %x {count, less=1}      becomes      %y = mul %x, (div %u, (max (sub 1, %u), 1/2)) */
#include "passes/train/batch_norm_count.h"
#include "passes/train/distribute.h"

#define BINARY(op, x, y) ir_binary(b, IR_OP_##op, x, y)
#define IN(n, op, slot) ir_in(n, IR_IN(op, slot))

static bool is_training(const ir_node *n)
{
    return n->op == IR_OP_batch_norm && n->attr[IR_ATTR(batch_norm, training)].i;
}

static ir_dtype type_of(const ir_value *x) { return x->type.dtype == IR_f64 ? IR_f64 : IR_f32; }

static ir_value *mean_of_ranks(ir_builder *b, ir_value *v)
{
    return v && distribute_reduce(b, &v, 1, IR_WORD(reduced, mean), v->type.dtype, false) ? v : NULL;
}

/* ---- statistics ----------------------------------------------------------------------------------------- */

/* old * kept + fresh * (1 - kept), like the op. */
static void move_statistic(ir_builder *b, ir_node *n, int slot, int result, ir_value *fresh)
{
    const double kept = n->attr[IR_ATTR(batch_norm, momentum)].f;
    ir_value *v = ir_out(n, result), *old = fresh ? ir_cast(b, ir_in(n, slot), fresh->type.dtype) : NULL;
    if (!old || !ir_value_used(v)) return;
    ir_value *moved = BINARY(mul, fresh, ir_scalar_like(b, fresh, 1 - kept));
    moved = BINARY(add, BINARY(mul, old, ir_scalar_like(b, old, kept)), moved);
    if (moved) ir_value_replace(v, ir_cast(b, moved, v->type.dtype));
}

static void share_statistics(ir_node *n, diag *d)
{
    ir_builder before = ir_builder_before(n, d), *b = &before;
    const ir_dtype type = type_of(IN(n, batch_norm, x));
    ir_value *in[IR_IN(batch_norm, var) + 1] = {IN(n, batch_norm, x)};
    for (int i = 1; i <= IR_IN(batch_norm, var); i++) in[i] = ir_cast(b, ir_in(n, i), type);
    ir_node *own = ir_new_array(b, IR_OP_batch_norm, IR_IN(batch_norm, var) + 1, in, 0);
    if (!own) return;
    ir_set_float(own, IR_ATTR(batch_norm, momentum), 0);
    ir_set_bool(own, IR_ATTR(batch_norm, training), true);
    if (!ir_done_all(b, own)) return;
    ir_value *mean = ir_out(own, IR_OUT(batch_norm, mean_out)), *all = mean_of_ranks(b, mean);
    ir_value *off = BINARY(sub, mean, all);
    ir_value *var = mean_of_ranks(b, BINARY(add, ir_out(own, IR_OUT(batch_norm, var_out)), BINARY(mul, off, off)));
    if (!var) return;
    move_statistic(b, n, IR_IN(batch_norm, mean), IR_OUT(batch_norm, mean_out), all);
    move_statistic(b, n, IR_IN(batch_norm, var), IR_OUT(batch_norm, var_out), var);
    in[IR_IN(batch_norm, mean)] = all;
    in[IR_IN(batch_norm, var)] = var;
    for (int i = 1; i <= IR_IN(batch_norm, var); i++) ir_node_set_input(n, i, in[i]);
    ir_set_bool(n, IR_ATTR(batch_norm, training), false);
    ir_infer(n, d);
}

/* Divides by the number of elements of all ranks less 1, or by 1 if there is only one element. */
static void share_count(ir_node *n, diag *d)
{
    ir_builder before = ir_builder_before(n, d), *b = &before;
    ir_value *x = ir_in(n, 0), *share = distribute_number(b, IR_WORD(rank_number, share));
    ir_node *part = share ? ir_new(b, IR_OP_div_count, 1, ir_cast(b, share, x->type.dtype)) : NULL;
    if (!part) return;
    const ir_attr *count = &n->attr[IR_ATTR(div_count, count)];
    ir_set_list(part, IR_ATTR(div_count, count), count->list.items, count->list.count);
    ir_value *u = ir_done(b, part);
    if (!u) return;
    ir_value *others = BINARY(max, BINARY(sub, ir_scalar_like(b, u, 1), u), ir_scalar_like(b, u, 0.5));
    ir_value *whole = BINARY(mul, x, BINARY(div, u, others));
    if (!whole) return;
    ir_value_replace(ir_out(n, 0), whole);
    ir_node_remove(n);
}

/* ---- gradients ------------------------------------------------------------------------------------------ */

/* v [C] as [C,1,..], which broadcasts to x. */
static ir_value *by_channel(ir_builder *b, ir_value *v, const ir_type *x)
{
    if (!v) return NULL;
    ir_type shape = ir_type_make(v->type.dtype, x->rank - 1, (int64_t[IR_MAX_RANK]){0});
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i ? 1 : x->dims[1];
    return ir_reshape_like(b, v, &shape);
}

/* a dy - (c + d (x - mean)), like the op, from the gradients of scale and bias of all ranks. */
static ir_value *gradient_of_x(ir_builder *b, const ir_node *n, ir_value *dscale, ir_value *dbias)
{
    ir_value *x = IN(n, batch_norm_grad, x);
    const ir_dtype type = type_of(x);
    ir_value *rstd = ir_cast(b, IN(n, batch_norm_grad, saved_rstd), type);
    ir_value *mean = ir_cast(b, IN(n, batch_norm_grad, saved_mean), type);
    ir_value *a = BINARY(mul, rstd, ir_cast(b, IN(n, batch_norm_grad, scale), type));
    ir_value *c = BINARY(mul, a, batch_norm_share(b, dbias, &x->type, 0));
    ir_value *share = batch_norm_share(b, dscale, &x->type, 0), *d = BINARY(mul, BINARY(mul, a, rstd), share);
    ir_value *means = by_channel(b, mean, &x->type), *centred = BINARY(sub, ir_cast(b, x, type), means);
    ir_value *product = BINARY(mul, by_channel(b, d, &x->type), centred);
    ir_value *along = BINARY(add, by_channel(b, c, &x->type), product);
    ir_value *dy = ir_cast(b, IN(n, batch_norm_grad, dy), type);
    return BINARY(sub, BINARY(mul, by_channel(b, a, &x->type), dy), along);
}

static void share_gradient(ir_node *n, diag *d)
{
    ir_builder after = ir_builder_after(n, d), *b = &after;
    ir_value *dx = ir_out(n, IR_OUT(batch_norm_grad, dx));
    const ir_dtype type = type_of(IN(n, batch_norm_grad, x));
    ir_set_bool(n, IR_ATTR(batch_norm_grad, training), false);
    if (!ir_value_used(dx)) return;
    ir_value *sums[] = {ir_out(n, IR_OUT(batch_norm_grad, dscale)), ir_out(n, IR_OUT(batch_norm_grad, dbias))};
    for (int i = 0; i < 2; i++) sums[i] = ir_cast(b, sums[i], type);
    if (!distribute_reduce(b, sums, 2, IR_WORD(reduced, mean), type, false)) return;
    ir_value *whole = gradient_of_x(b, n, sums[0], sums[1]);
    if (whole) ir_value_replace(dx, ir_cast(b, whole, dx->type.dtype));
}

/* ---- the pass -------------------------------------------------------------------------------------------- */

/* The gradients of statistics that a loss reads, and those that a penalty differentiates, are of this rank. */
static ampc_status check(const ir_node *n, diag *d)
{
    static const int saved[] = {IR_OUT(batch_norm, saved_mean), IR_OUT(batch_norm, saved_rstd)};
    bool differs = n->graph->owner || ir_output_by_role(n->graph, IR_OUTPUT_penalty);
    for (int i = 0; i < 2; i++)
        for (const ir_use *u = ir_out(n, saved[i])->first_use; u; u = u->next)
            differs |= u->user->phase == IR_BACKWARD && u->user->op != IR_OP_batch_norm_grad;
    if (!differs) return AMPC_OK;
    return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n), "the statistics of all ranks are not supported %s",
                      n->graph->owner ? "in the body of an operator"
                                      : "where the gradient of the statistics is part of the loss");
}

static void share_gradients(ir_node *n, diag *d)
{
    for (ir_use *u = ir_out(n, IR_OUT(batch_norm, saved_mean))->first_use, *next; u; u = next) {
        next = u->next;
        if (u->user->op == IR_OP_batch_norm_grad) share_gradient(u->user, d);
    }
}

ampc_status distribute_batch_norm(ir_graph *g, diag *d)
{
    for (ir_graph *each = g; each; each = ir_next_graph_in(g, each))
        for (ir_node *n = each->first, *next; n; n = next) {
            next = n->next;
            if (batch_norm_divides_by_less(n)) {
                share_count(n, d);
                continue;
            }
            if (!is_training(n)) continue;
            TRY(check(n, d));
            share_statistics(n, d);
            share_gradients(n, d);
        }
    return diag_status(d);
}

void distribute_note_batch_norm(ir_graph *g, const compile_options *o, diag *d)
{
    for (ir_graph *each = g; each; each = ir_next_graph_in(g, each))
        for (ir_node *n = each->first; n; n = n->next) {
            if (!is_training(n)) continue;
            if (o->tree && o->sync_bn)
                diag_note(d, ir_diag_loc(n),
                          "statistics are those of a micro-batch of all ranks: the same bits need the same number of "
                          "ranks");
            else if (!o->tree && !o->sync_bn)
                diag_note(d, DIAG_USE(ir_diag_loc(n), OPTION_sync_bn, .purpose = "for those of all ranks"),
                          "statistics are those of the samples of each rank");
            return;
        }
}
