/* consumer.c - the built-in consumers, which are passes/consumers/NAME.consumer, and the keys of description files. A
 * key may be on several lines. */
#include "passes/amp/consumer.h"

#include "ir/ops/number.h"
#include "passes/amp/description.h"
#include "passes/builtin_profiles.h"

#include <string.h>

static const struct {
    const char *name, *text;
} built_in[] = {
#define CONSUMER_ROW(name, id) {name, pass_consumer_##id},
    PASS_BUILTIN_CONSUMER_MAP(CONSUMER_ROW)};

static bool is_word(const char *text, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:";
    return n > 0 && strspn(text, letters) >= n;
}

/* "Op, Op": every operator has the place of the first line that names it. */
static bool add_operators(consumer *c, strmap *to, const char *value, int line)
{
    list_place *place = arena_alloc(c->arena, sizeof *place);
    *place = (list_place){c->file, line};
    for (const char *end;; value = end + 1) {
        value += strspn(value, " \t");
        end = value + strcspn(value, ",");
        size_t n = (size_t)(end - value);
        while (n && strchr(" \t", value[n - 1])) n--;
        if (!is_word(value, n)) return false;
        const char *op = arena_strndup(c->arena, value, n);
        if (!strmap_get(to, op)) strmap_put(to, op, place);
        if (!*end) return true;
    }
}

static bool set_key(void *user, const char *key, const char *value, int line)
{
    consumer *c = user;
    const struct {
        const char *key;
        strmap *to;
    } lists[] = {{"f32_inside", c->f32_inside}, {"no_kernel", c->no_kernel}, {"fuses", c->fuses}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(key, lists[i].key) == 0) return add_operators(c, lists[i].to, value, line);
    if (strcmp(key, "opset") == 0) return ir_int_parse(value, &c->opset) && c->opset > 0 && c->opset <= 1000;
    if (strcmp(key, "terms") == 0) {
        c->terms_place.line = line;
        return ir_int_parse(value, &c->terms) && c->terms > 0 && c->terms <= (int64_t)1 << 31;
    }
    const struct {
        const char *key, **to;
    } texts[] = {{"name", &c->name}, {"text", &c->text}, {"patterns", &c->patterns}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(key, texts[i].key) == 0) return *(*texts[i].to = arena_strdup(c->arena, value)) != '\0';
    return false;
}

ampc_status consumer_load(const char *name, arena *a, diag *d, const consumer **out)
{
    consumer *c = arena_alloc(a, sizeof *c);
    const char *text = NULL;
    *c = (consumer){.arena = a, .name = name, .text = "", .patterns = "", .file = arena_strdup(a, name)};
    c->f32_inside = strmap_new(a);
    c->no_kernel = strmap_new(a);
    c->fuses = strmap_new(a);
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        if (strcmp(built_in[i].name, name) == 0) text = built_in[i].text;
    if (text) c->file = arena_printf(a, "consumer %s", name);
    c->terms_place.file = c->file;
    *out = c;
    return description_read(c->file, text, &(description){"consumer", set_key, c}, d);
}

const list_place *consumer_inside(const consumer *c, const ir_node *n)
{
    const list_place *line = n->loc.op ? strmap_get(c->f32_inside, n->loc.op) : NULL;
    return line || !n->loc.fused_from ? line : strmap_get(c->fuses, n->loc.op);
}
