/* trainers.c - which optimizer updates which parameters by which losses: those of the recipe, or one of the options. */
#include "passes/train/trainers.h"

diag_loc recipe_place(const ir_module *m, int line) { return (diag_loc){.file = m->training.recipe, .line = line}; }

static ampc_status use_option(const ir_module *m, const compile_options *o, diag *d, trainer_list *list)
{
    if (!o->optimizer) return AMPC_OK;
    if (list->count > 1)
        return diag_error(d, AMPC_USAGE, diag_about(recipe_place(m, 0), OPTION_optimizer),
                          "the recipe has %zu optimizers", list->count);
    list->items[0].optimizer = o->optimizer;
    return AMPC_OK;
}

ampc_status trainers_find(const ir_module *m, const compile_options *o, diag *d, trainer_list *out)
{
    static const char *const everything[] = {"*"};
    *out = (trainer_list){0};
    for (size_t i = 0; i < m->training.trainers.count; i++) vec_push(m->arena, out, m->training.trainers.items[i]);
    if (out->count) return use_option(m, o, d, out);
    const ir_trainer all = {.globs = {everything, 1}, .optimizer = o->optimizer};
    vec_push(m->arena, out, all);
    return AMPC_OK;
}

int trainers_owner(const trainer_list *t, const ir_storage *param)
{
    for (size_t i = 0; i < t->count; i++)
        if (pass_match(&t->items[i].globs, param->name)) return (int)i;
    return -1;
}

static ampc_status check_globs(const ir_module *m, const ir_trainer *t, diag *d)
{
    for (int i = 0; i < t->globs.count && t->line; i++) {
        const pass_strings glob = {&t->globs.items[i], 1};
        bool found = false;
        for (size_t k = 0; k < m->storage.count && !found; k++)
            found = m->storage.items[k]->kind == IR_PARAM && pass_match(&glob, m->storage.items[k]->name);
        if (!found)
            return diag_error(d, AMPC_REJECTED, recipe_place(m, t->line), "'%s' matches no parameter",
                              t->globs.items[i]);
    }
    return AMPC_OK;
}

ampc_status trainers_check(const ir_module *m, const trainer_list *t, diag *d)
{
    for (size_t i = 0; i < t->count; i++) TRY(check_globs(m, &t->items[i], d));
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        if (s->kind != IR_PARAM) continue;
        const int owner = trainers_owner(t, s);
        for (size_t k = (size_t)owner + 1; owner >= 0 && k < t->count; k++)
            if (pass_match(&t->items[k].globs, s->name))
                return diag_error(d, AMPC_REJECTED, recipe_place(m, t->items[k].line),
                                  "parameter '%s' already belongs to the optimizer of line %d", s->name,
                                  t->items[owner].line);
    }
    return AMPC_OK;
}
