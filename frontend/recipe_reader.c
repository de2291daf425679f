/* recipe_reader.c - what the statements of a recipe share: names and the file. */
#include "frontend/recipe_reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 4096 };

ampc_status recipe_read_file(const char *path, char *text, size_t *length, diag *d)
{
    FILE *f = fopen(path, "rb");
    if (!f) return diag_errno(d, DIAG_FILE(path), "cannot open");
    *length = fread(text, 1, RECIPE_LONGEST + 1, f);
    const bool failed = ferror(f) != 0;
    const int cause = errno;
    fclose(f);
    errno = cause;
    if (failed) return diag_errno(d, DIAG_FILE(path), "cannot read");
    if (*length <= RECIPE_LONGEST) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "a recipe has at most %d bytes", RECIPE_LONGEST);
}

static const char *const reserved[] = {"model", "input", "loss", "train", "option", "detach"};

static const char *const kind_names[] = {"a model", "a value", "an input", "a loss"};

static bool is_name(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_') return false;
    while (isalnum((unsigned char)*text) || *text == '_') text++;
    return !*text;
}

static ampc_status need_name(recipe *r, const char *what, const char **name)
{
    const ir_token t = r->p.lex.token;
    TRY(ir_need(&r->p, IR_TOKEN_WORD, what, name));
    if (!is_name(*name)) return FAIL_AT(&r->p, &t, "'%s' is not a name: use letters, digits and '_'", *name);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(*name, reserved[i]) == 0)
            return FAIL_AT(&r->p, &t, "'%s' is a word of the language, not a name", *name);
    return AMPC_OK;
}

ampc_status recipe_define(recipe *r, const char *what, recipe_kind kind, recipe_name **out)
{
    const ir_token t = r->p.lex.token;
    const char *name;
    TRY(need_name(r, what, &name));
    const recipe_name *earlier = strmap_get(r->names, name);
    if (earlier)
        return FAIL_AT(&r->p, &t, "'%s' is already defined in line %d, as %s", name, earlier->at.line,
                       kind_names[earlier->kind]);
    if (r->defined.count == MAX_NAMES) return FAIL_AT(&r->p, &t, "more than %d names", MAX_NAMES);
    *out = arena_alloc(r->p.scratch, sizeof **out);
    **out = (recipe_name){.kind = kind, .name = arena_strdup(r->p.module->arena, name), .at = t};
    strmap_put(r->names, name, *out);
    vec_push(r->p.scratch, &r->defined, *out);
    return AMPC_OK;
}

ampc_status recipe_find(recipe *r, const char *what, unsigned kinds, recipe_name **out)
{
    const ir_token t = r->p.lex.token;
    const char *name;
    TRY(need_name(r, what, &name));
    *out = strmap_get(r->names, name);
    if (!*out) return FAIL_AT(&r->p, &t, "'%s' is not defined: expected %s", name, what);
    if (!(RECIPE_KIND((*out)->kind) & kinds))
        return FAIL_AT(&r->p, &t, "'%s' is %s: expected %s", name, kind_names[(*out)->kind], what);
    (*out)->used = true;
    return AMPC_OK;
}

ampc_status recipe_check_used(recipe *r)
{
    for (size_t i = 0; i < r->defined.count; i++) {
        const recipe_name *n = r->defined.items[i];
        if (!n->used && n->kind != RECIPE_VALUE)
            FAIL_AT(&r->p, &n->at, "%s '%s' is not used", strchr(kind_names[n->kind], ' ') + 1, n->name);
    }
    return diag_status(r->p.diag);
}
