/* scaler_rules.h - the loss scalers of other frameworks as each of them writes its rules, and random sequences of flags on
 * which the op of a compiled step is compared with them, on any device. */
#ifndef TESTS_SCALER_RULES_H
#define TESTS_SCALER_RULES_H

#include "kernels/kernel.h"
#include "tests/train/training_net.h"

#include <stdint.h>

enum { SEQUENCES = 10000 };

/* ---- the references, in f32 as the frameworks compute --------------------------------------------- */

typedef struct reference {
    float scale, incr, decr, min, max;
    int good, bad, incr_every, decr_every;
    int tracker; /* Apex: steps that hysteresis still tolerates */
} reference;

/* amp_update_scale_ of PyTorch, which has no count of bad steps. */
static inline void torch(reference *r, bool found)
{
    if (found) {
        r->scale *= r->decr;
        r->good = 0;
        return;
    }
    const int successful = r->good + 1;
    if (successful < r->incr_every) {
        r->good = successful;
        return;
    }
    const float grown = r->scale * r->incr;
    if (isfinite(grown)) r->scale = grown;
    r->good = 0;
}

/* fp16_utils.update_loss_scaling of PaddlePaddle 1.8 */
static inline void paddle_1_8(reference *r, bool found)
{
    if (!found) {
        const bool grow = r->incr_every < r->good + 1;
        const float grown = r->scale * r->incr;
        if (grow && isfinite(grown)) r->scale = grown;
        r->good = grow ? 0 : r->good + 1;
        r->bad = 0;
        return;
    }
    const bool shrink = r->decr_every < r->bad + 1;
    const float shrunk = r->scale * r->decr;
    if (shrink) r->scale = shrunk < 1 ? 1 : shrunk;
    r->bad = shrink ? 0 : r->bad + 1;
    r->good = 0;
}

/* UpdateLossScalingFunctor of PaddlePaddle 2 and 3 */
static inline void paddle(reference *r, bool found)
{
    if (found) {
        r->good = 0;
        r->bad++;
        if (r->bad == r->decr_every) {
            r->scale = r->scale * r->decr < 1 ? 1 : r->scale * r->decr;
            r->bad = 0;
        }
        return;
    }
    r->bad = 0;
    r->good++;
    if (r->good == r->incr_every) {
        if (isfinite(r->scale * r->incr)) r->scale *= r->incr;
        r->good = 0;
    }
}

/* update_scale_hysteresis of Apex, with the limits of its LossScaler */
static inline void apex(reference *r, bool found)
{
    if (found && --r->tracker > 0) {
        r->good = 0;
        return;
    }
    if (found) {
        r->scale = fmaxf(r->min, r->scale * r->decr);
        r->good = 0;
        return;
    }
    if (++r->good == r->incr_every) {
        if (isfinite(r->scale * r->incr)) r->scale = fminf(r->max, r->scale * r->incr);
        r->good = 0;
    }
    r->tracker = r->decr_every;
}

/* ---- the scalers to compare ------------------------------------------------------------------------ */

typedef struct scaler_row {
    const char *name;
    const char *preset; /* a word of --loss-scale-preset; NULL: the default */
    void (*step)(reference *r, bool found);
    reference rules;
    bool overrides;  /* the numbers are given as options; else they are those of the preset */
    bool counts_bad; /* the reference has the same count of bad steps */
} scaler_row;

static const scaler_row scaler_rows[] = {
    {"default", NULL, paddle, {65536, 2, 0.5f, 1, 0, .incr_every = 2000, .decr_every = 1}, false, true},
    {"torch", "torch", torch, {65536, 2, 0.5f, 0, 0, .incr_every = 2000, .decr_every = 1}, false, true},
    {"paddle-1.8", "paddle-1.8", paddle_1_8, {32768, 2, 0.8f, 1, 0, .incr_every = 1000, .decr_every = 2}, false, true},
    {"paddle-2", "paddle-2", paddle, {32768, 2, 0.8f, 1, 0, .incr_every = 1000, .decr_every = 2}, false, true},
    {"paddle-3", "paddle-3", paddle, {65536, 2, 0.5f, 1, 0, .incr_every = 2000, .decr_every = 1}, false, true},
    {"torch, numbers", "torch", torch, {512, 1.5f, 0.25f, 0, 0, .incr_every = 3, .decr_every = 1}, true, true},
    {"paddle-1.8, numbers", "paddle-1.8", paddle_1_8, {9, 3, 0.3f, 1, 0, .incr_every = 4, .decr_every = 3}, true, true},
    {"paddle-3, numbers", "paddle-3", paddle, {77, 1.25f, 0.9f, 1, 0, .incr_every = 1, .decr_every = 3}, true, true},
    {"Apex", NULL, apex, {1024, 2, 0.5f, 4, 65536, .incr_every = 20, .decr_every = 3}, true, false},
    {"Megatron", NULL, apex, {65536, 2, 0.5f, 1, 0x1p100f, .incr_every = 1000, .decr_every = 2}, true, false},
};
enum { SCALER_ROWS = sizeof scaler_rows / sizeof *scaler_rows };

static inline compile_options scaler_options(const scaler_row *row)
{
    const reference *r = &row->rules;
    compile_options o = options("mse", "sgd");
    int word = PASS_PRESET_NONE;
    if (row->preset) assert_true(pass_find_word(pass_presets, row->preset, &word));
    o.preset = (pass_preset)word;
    if (!row->overrides) return o;
    o.init_scale = (double)r->scale;
    o.incr_ratio = (double)r->incr;
    o.decr_ratio = (double)r->decr;
    o.incr_every = r->incr_every;
    if (row->step == apex) o.hysteresis = r->decr_every;
    else if (row->step != torch) o.decr_every = r->decr_every;
    if (r->min > 1) o.min_scale = (double)r->min;
    if (r->max > 0) o.max_scale = (double)r->max;
    return o;
}

static inline const ir_node *scaler_update(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train_step);
    for (const ir_node *n = g ? g->first : NULL; n; n = n->next)
        if (n->op == IR_OP_update_loss_scaling) return n;
    fail_msg("no update of the loss scale");
    return NULL;
}

/* ---- the comparison -------------------------------------------------------------------------------- */

/* The states before and after each of `length` steps; element 0 is given. */
typedef struct scaler_trail {
    int length;
    bool *found;
    float *scale;
    int32_t *good, *bad;
} scaler_trail;

/* Runs the op on the flags of the trail. */
typedef void scaler_run(const ir_node *update, scaler_trail *trail);

static inline double draw(uint64_t sequence, uint64_t k) { return philox_unit(philox_word(77, sequence, k)); }

/* Starts near the limits of the counters, so that short sequences cross them. */
static inline reference scaler_start(const reference *rules, uint64_t sequence, int length)
{
    reference r = *rules;
    const int near = r.incr_every < length ? r.incr_every : length / 2;
    r.scale = (float)ldexp(1 + draw(sequence, 1), (int)(draw(sequence, 2) * 254) - 126);
    if (r.min > 0) r.scale = fmaxf(r.scale, r.min);
    if (r.max > 0) r.scale = fminf(r.scale, r.max);
    r.good = r.incr_every - 1 - (int)(draw(sequence, 3) * near);
    r.bad = 0;
    if (draw(sequence, 6) < 0.5) { /* after a bad step */
        r.good = 0;
        r.bad = (int)(draw(sequence, 7) * r.decr_every);
    }
    r.tracker = r.decr_every - r.bad;
    return r;
}

static inline void check_trail(const scaler_row *row, reference *r, const scaler_trail *t, int sequence)
{
    for (int k = 0; k < t->length; k++) {
        row->step(r, t->found[k]);
        if (t->scale[k + 1] == r->scale && t->good[k + 1] == r->good && (!row->counts_bad || t->bad[k + 1] == r->bad))
            continue;
        fail_msg("%s, sequence %d, step %d: %a/%d/%d, not %a/%d/%d", row->name, sequence, k, (double)t->scale[k + 1],
                 t->good[k + 1], t->bad[k + 1], (double)r->scale, r->good, r->bad);
    }
}

/* Compares SEQUENCES random sequences, in which the scale must grow and shrink often. */
static inline void scaler_compare(scratch *t, const scaler_row *row, scaler_trail *trail, scaler_run *run_op)
{
    int grown = 0, shrunk = 0;
    const compile_options o = scaler_options(row);
    net n = open_net(t, mlp, &o);
    assert_true(state_of(&n, "loss_scale") == (double)row->rules.scale);
    const ir_node *update = scaler_update(n.m);
    for (int s = 0; s < SEQUENCES; s++) {
        reference r = scaler_start(&row->rules, (uint64_t)s, trail->length);
        const double bad_share = 0.7 * draw((uint64_t)s, 4) * draw((uint64_t)s, 5);
        for (int k = 0; k < trail->length; k++) trail->found[k] = draw((uint64_t)s, 10 + (uint64_t)k) < bad_share;
        trail->scale[0] = r.scale;
        trail->good[0] = r.good;
        trail->bad[0] = r.bad;
        run_op(update, trail);
        check_trail(row, &r, trail, s);
        for (int k = 0; k < trail->length; k++) {
            grown += trail->scale[k + 1] > trail->scale[k];
            shrunk += trail->scale[k + 1] < trail->scale[k];
        }
    }
    close_net(&n);
    if (grown < SEQUENCES / 50 || shrunk < SEQUENCES / 50)
        fail_msg("%s: the scale grew only %d times and shrank %d times", row->name, grown, shrunk);
}

#endif
