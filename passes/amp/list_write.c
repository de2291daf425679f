/* list_write.c - names as a list file spells them, and the effective list as text or for ATC (--emit-list). */
#include "ir/base/text_buffer.h"
#include "passes/amp/list.h"
#include "passes/amp/mixlist.h"

#include <ctype.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* The text as list_read.c reads it: in quotes if the line would be read differently otherwise. */
static void put_quoted(text_buffer *t, const char *text)
{
    const size_t n = strlen(text);
    bool quoted = !n || *text == '[' || *text == ' ' || text[n - 1] == ' ';
    for (const char *p = text; *p && !quoted; p++) quoted = iscntrl((unsigned char)*p) || strchr("#\"", *p);
    if (quoted) text_put(t, "\"");
    for (const char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p)) text_add(t, "\\x%02x", (unsigned char)*p);
        else text_add(t, quoted && strchr("\"\\", *p) ? "\\%c" : "%c", *p);
    if (quoted) text_put(t, "\"");
}

/* A comment has one line, whatever names it contains. */
static const char *finish_line(text_buffer *t, const char *reason)
{
    if (reason) text_put(t, "  # ");
    for (; reason && *reason; reason++) text_add(t, "%c", iscntrl((unsigned char)*reason) ? ' ' : *reason);
    return text_finish(t);
}

static const char *dtype_name(ir_dtype dtype) { return dtype == IR_f32 ? "fp32" : dtype == IR_f16 ? "fp16" : "bf16"; }

const char *amp_list_glob(const char *name, arena *a)
{
    text_buffer glob = {.arena = a};
    if (strncmp(name, LIST_REGEX, strlen(LIST_REGEX)) == 0) text_put(&glob, "\\");
    for (; *name; name++) text_add(&glob, strchr("*?[\\", *name) ? "\\%c" : "%c", *name);
    return text_finish(&glob);
}

const char *amp_list_node_line(const char *name, ir_dtype dtype, const char *reason, arena *a)
{
    text_buffer line = {.arena = a};
    put_quoted(&line, amp_list_glob(name, a));
    text_add(&line, " = %s", dtype_name(dtype));
    return finish_line(&line, reason);
}

const char *amp_list_tensor_line(const char *name, const char *reason, arena *a)
{
    text_buffer line = {.arena = a};
    put_quoted(&line, name);
    return finish_line(&line, reason);
}

/* ---- --emit-list ----------------------------------------------------------------------------- */

/* Whether a later layer has an unconditional line or a removal for the operator, so that the line has no effect. */
static bool overridden(const amp_list *l, size_t layer, const list_entry *e)
{
    for (size_t i = layer + 1; i < l->layers.count; i++) {
        if (strmap_get(l->layers.items[i].unconditional, e->op)) return true;
        for (size_t k = 0; k < l->layers.items[i].entries.count; k++) {
            const list_entry *later = &l->layers.items[i].entries.items[k];
            if (later->remove && later->colour == e->colour && strcmp(later->op, e->op) == 0) return true;
        }
    }
    return false;
}

/* Conditional lines are printed in the order in which they are tried, regardless of their colour. */
static void print_conditional(const amp_list *l, text_buffer *t)
{
    const list_entry *last = NULL;
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].entries.count; k++) {
            const list_entry *e = &l->layers.items[i].entries.items[k];
            if (e->remove || !e->conditions.count || overridden(l, i, e)) continue;
            if (!last || last->colour != e->colour) text_add(t, "\n[%s]\n", ir_colour_name(e->colour));
            text_add(t, "%s\n", e->text);
            last = e;
        }
}

static void print_section(const amp_list *l, ir_colour colour, text_buffer *t)
{
    text_add(t, "\n[%s]\n", ir_colour_name(colour));
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].entries.count; k++) {
            const list_entry *e = &l->layers.items[i].entries.items[k];
            if (e->remove || e->colour != colour || e->conditions.count || overridden(l, i, e)) continue;
            text_add(t, "%s\n", e->text);
        }
}

static void print_patterns(const amp_list *l, text_buffer *t)
{
    text_put(t, "\n[nodes]\n");
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].nodes.count; k++) {
            put_quoted(t, l->layers.items[i].nodes.items[k].glob);
            text_add(t, " = %s\n", dtype_name(l->layers.items[i].nodes.items[k].dtype));
        }
    text_put(t, "\n[tensors]\n");
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].tensors.count; k++)
            text_add(t, "%s\n", amp_list_tensor_line(l->layers.items[i].tensors.items[k].glob, NULL, t->arena));
}

static void print_operands(const amp_list *l, text_buffer *t)
{
    strmap *seen = strmap_new(t->arena);
    text_put(t, "\n[operands]\n");
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].operands.count; k++) {
            const list_operands *o = &l->layers.items[i].operands.items[k];
            if (!strmap_get(seen, o->op)) text_add(t, "%s = %s\n", o->op, o->text);
            strmap_put(seen, o->op, t);
        }
}

const char *pass_print_list(const compile *c, arena *a)
{
    static const ir_colour colours[] = {IR_WHITE, IR_BLACK, IR_GRAY, IR_CLEAR};
    const amp_list *l = c->list;
    char value[SETTING_TEXT_SIZE];
    text_buffer t = {.arena = a};
    text_put(&t, "[meta]\nversion = 1\nbase    = empty\n");
    print_conditional(l, &t);
    for (int i = 0; i < 4; i++) print_section(l, colours[i], &t);
    print_patterns(l, &t);
    print_operands(l, &t);
    text_put(&t, "\n[rules]\n");
    for (rule_id i = 0; i < RULE_COUNT; i++)
        text_add(&t, "%s = %s\n", rules_rows[i].key, setting_print(&rules_rows[i], &l->rule, value));
    return text_finish(&t);
}

/* ---- --emit-list=FILE.json ------------------------------------------------------------------- */

/* A mixlist modifies the lists that ATC has itself, so only lines of files and of the command line are written. */
static void put_operators(const amp_list *l, ir_colour colour, bool remove, text_buffer *t)
{
    strmap *seen = strmap_new(l->arena);
    const char *comma = "";
    text_add(t, "%s\"%s\": [", remove ? ", " : "", remove ? "to-remove" : "to-add");
    for (size_t i = l->layers.count; i-- > 1;)
        for (size_t k = 0; k < l->layers.items[i].entries.count; k++) {
            const list_entry *e = &l->layers.items[i].entries.items[k];
            const char *name;
            if (e->remove != remove || e->colour != colour || e->conditions.count || overridden(l, i, e)) continue;
            if (remove && strmap_get(l->layers.items[i].unconditional, e->op)) continue;
            for (int n = 0; (name = mixlist_name(e->op, n)); n++) {
                if (strmap_get(seen, name)) continue;
                text_add(t, "%s\"%s\"", comma, name);
                comma = ", ";
                strmap_put(seen, name, t);
            }
        }
    text_put(t, "]");
}

static ampc_status inexpressible(diag *d, const list_place *p, const char *what, const char *text)
{
    const diag_loc loc = p ? (diag_loc){.file = p->file, .line = p->line, .column = p->line ? 1 : 0}
                           : DIAG_OPTION(emit_list);
    return diag_warning(d, loc, "a list for ATC cannot express the %s '%s'", what, text);
}

static ampc_status check_expressible(const amp_list *l, diag *d)
{
    ampc_status worst = AMPC_OK;
    for (size_t i = 1; i < l->layers.count; i++) {
        const list_layer *layer = &l->layers.items[i];
        for (size_t k = 0; k < layer->entries.count; k++) {
            const list_entry *e = &layer->entries.items[k];
            const char *what = e->conditions.count ? "condition of" : e->colour == IR_CLEAR ? "clear operator" : NULL;
            if (what && inexpressible(d, &e->place, what, e->text) != AMPC_OK) worst = AMPC_REJECTED;
        }
        for (size_t k = 0; k < layer->nodes.count; k++)
            if (inexpressible(d, &layer->nodes.items[k].place, "node", layer->nodes.items[k].glob) != AMPC_OK)
                worst = AMPC_REJECTED;
        for (size_t k = 0; k < layer->tensors.count; k++)
            if (inexpressible(d, &layer->tensors.items[k].place, "tensor", layer->tensors.items[k].glob) != AMPC_OK)
                worst = AMPC_REJECTED;
        for (size_t k = 0; k < layer->operands.count; k++)
            if (inexpressible(d, &layer->operands.items[k].place, "operands of", layer->operands.items[k].op) !=
                AMPC_OK)
                worst = AMPC_REJECTED;
    }
    for (rule_id i = 0; i < RULE_COUNT; i++)
        if (l->set[i] && inexpressible(d, NULL, "rule", rules_rows[i].key) != AMPC_OK) worst = AMPC_REJECTED;
    if (l->base && strcmp(l->base, "ampc") != 0 && inexpressible(d, NULL, "profile", l->base) != AMPC_OK)
        worst = AMPC_REJECTED;
    return worst;
}

ampc_status pass_print_mixlist(const compile *c, arena *a, const char **text)
{
    static const struct {
        const char *name;
        ir_colour colour;
    } lists[] = {{"black-list", IR_BLACK}, {"white-list", IR_WHITE}, {"gray-list", IR_GRAY}};
    text_buffer t = {.arena = a};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        text_add(&t, "%s  \"%s\": {", i ? ",\n" : "{\n", lists[i].name);
        put_operators(c->list, lists[i].colour, false, &t);
        if (lists[i].colour != IR_GRAY) put_operators(c->list, lists[i].colour, true, &t);
        text_put(&t, "}");
    }
    text_put(&t, "\n}\n");
    *text = text_finish(&t);
    return check_expressible(c->list, c->diag);
}
