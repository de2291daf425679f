/* trainers.c - reads the losses and optimizers of a recipe from the meta entries of the module (frontend/recipe.h). */
#include "passes/train/trainers.h"

#include <stdlib.h>
#include <string.h>

diag_loc recipe_place(const ir_module *m, int line)
{
    return (diag_loc){.file = ir_meta_get(m, "recipe"), .line = line};
}

/* Splits "LINE TEXT". */
static int read_line(const char *value, const char **text)
{
    char *end;
    const long line = strtol(value, &end, 10);
    *text = end + (*end == ' ');
    return line > 0 && line < 1 << 30 ? (int)line : 0;
}

static const char *after_prefix(const char *key, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 ? key + n : NULL;
}

recipe_losses recipe_find_losses(const ir_module *m)
{
    recipe_losses all = {0};
    for (size_t i = 0; i < m->meta.count; i++) {
        recipe_loss loss = {.name = after_prefix(m->meta.items[i].key, "loss.")};
        if (!loss.name) continue;
        loss.line = read_line(m->meta.items[i].value, &loss.text);
        vec_push(m->arena, &all, loss);
    }
    return all;
}

/* The items of a text, which it separates by one character. */
static pass_strings split(const char *text, char separator, arena *a)
{
    VEC(const char *) items = {0};
    const char ends[] = {separator, 0};
    while (*text) {
        const size_t n = strcspn(text, ends);
        vec_push(a, &items, arena_strndup(a, text, n));
        text += n + (text[n] != 0);
    }
    return (pass_strings){items.items, (int)items.count};
}

/* Cuts the text at " WORD ", and returns what follows; NULL if it does not occur. */
static char *cut(char *text, const char *word)
{
    char *at = strstr(text, word);
    if (!at) return NULL;
    *at = '\0';
    return at + strlen(word);
}

static bool parse_trainer(const ir_module *m, const char *value, trainer *out)
{
    const char *rest;
    out->line = read_line(value, &rest);
    char *globs = arena_strdup(m->arena, rest), *optimizer = cut(globs, " by ");
    char *losses = optimizer ? cut(optimizer, " on ") : NULL;
    if (!losses) return false;
    out->globs = split(globs, ',', m->arena);
    out->losses = split(losses, '+', m->arena);
    out->optimizer = optimizer;
    return out->globs.count && out->losses.count;
}

static ampc_status use_option(const ir_module *m, const compile_options *o, diag *d, trainer_list *list)
{
    if (!o->optimizer) return AMPC_OK;
    if (list->count > 1)
        return diag_error(d, AMPC_USAGE, recipe_place(m, 0), "--optimizer: the recipe has %zu optimizers", list->count);
    list->items[0].optimizer = o->optimizer;
    return AMPC_OK;
}

ampc_status trainers_find(const ir_module *m, const compile_options *o, diag *d, trainer_list *out)
{
    static const char *const everything[] = {"*"};
    *out = (trainer_list){0};
    for (size_t i = 0; i < m->meta.count; i++) {
        trainer t = {0};
        if (!after_prefix(m->meta.items[i].key, "train.")) continue;
        if (!parse_trainer(m, m->meta.items[i].value, &t))
            return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "meta \"%s\": expected LINE GLOBS by OPTIMIZER on LOSSES",
                              m->meta.items[i].key);
        vec_push(m->arena, out, t);
    }
    if (out->count) return use_option(m, o, d, out);
    const trainer all = {.globs = {everything, 1}, .optimizer = o->optimizer};
    vec_push(m->arena, out, all);
    return AMPC_OK;
}

int trainers_owner(const trainer_list *t, const ir_storage *param)
{
    for (size_t i = 0; i < t->count; i++)
        if (pass_match(&t->items[i].globs, param->name)) return (int)i;
    return -1;
}

static ampc_status check_globs(const ir_module *m, const trainer *t, diag *d)
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
