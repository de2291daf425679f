/* plan_print.c - a plan as a table for people and expect tests. */
#include "runtime/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_view(FILE *f, const k_view *v)
{
    fprintf(f, "%s[", ir_dtype_name(v->dtype));
    for (int i = 0; i < v->rank; i++) fprintf(f, "%s%" PRId64, i ? "," : "", v->dims[i]);
    fputc(']', f);
}

static const char *sigil(const ir_value *v) { return v->kind == IR_VALUE_RESULT ? "%" : "@"; }

static void print_buffer(FILE *f, const rt_plan *p, int buffer)
{
    if (buffer == RT_NO_BUFFER) {
        fputs("dropped", f);
        return;
    }
    const rt_buffer *b = &p->buffers[buffer];
    if (b->home == RT_ARENA)
        fprintf(f, "%" PRId64 "+%" PRId64, b->offset, b->bytes);
    else if (b->home == RT_STORAGE)
        fprintf(f, "@%s", p->graph->module->storage.items[b->index]->name);
    else
        fprintf(f, "@%s", p->graph->inputs.items[b->index]->name);
}

/* The operand whose buffer the result took over, if there is one. */
static const ir_value *taken_over(const rt_step *s, int k)
{
    for (int j = 0; j < s->node->n_in; j++)
        if (s->in_buffer[j] != RT_NO_BUFFER && s->in_buffer[j] == s->out_buffer[k])
            return s->node->in[j].value;
    return NULL;
}

static void print_step(FILE *f, const rt_plan *p, int i)
{
    const rt_step *s = &p->steps[i];
    fprintf(f, "%4d  %-20s", i, ir_op_get(s->node->op)->name);
    const char *separator = " ";
    for (int j = 0; j < s->node->n_in; j++) {
        const ir_value *v = s->node->in[j].value;
        fprintf(f, "%s%s%s", separator, v ? sigil(v) : "", v ? v->name : "_");
        separator = ", ";
    }
    if (s->workspace != RT_NO_BUFFER) {
        fputs("  workspace ", f);
        print_buffer(f, p, s->workspace);
    }
    fputc('\n', f);
    for (int k = 0; k < s->node->n_out; k++) {
        if (s->out[k].dtype == IR_NO_DTYPE) continue;
        fprintf(f, "        %%%s : ", s->node->out[k]->name);
        print_view(f, &s->out[k]);
        fputs(" at ", f);
        print_buffer(f, p, s->out_buffer[k]);
        const ir_value *over = taken_over(s, k);
        if (over) fprintf(f, " over %s%s", sigil(over), over->name);
        fputc('\n', f);
    }
}

static void print_copies(FILE *f, const rt_plan *p, const char *word, const rt_copy *copies, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(f, "%s ", word);
        print_buffer(f, p, copies[i].to);
        fputs(" = ", f);
        print_buffer(f, p, copies[i].from);
        fputc('\n', f);
    }
}

static void print_plan(FILE *f, const rt_plan *p)
{
    fprintf(f, "plan @%s", p->graph->name);
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] >= 0)
            fprintf(f, " %s=%" PRId64, ir_dim_symbol_name(p->graph->module->dims, i), p->sizes[i]);
    fprintf(f, ": %d steps, arena %" PRId64 " bytes\n", p->n_steps, p->arena_bytes);
    print_copies(f, p, "keep", p->before, p->n_before);
    for (int i = 0; i < p->n_steps; i++) print_step(f, p, i);
    for (int i = 0; i < p->n_outputs; i++) {
        fprintf(f, "output \"%s\" at ", p->outputs[i].name);
        print_buffer(f, p, p->outputs[i].buffer);
        fputc('\n', f);
    }
    print_copies(f, p, "commit", p->after, p->n_after);
}

char *rt_plan_print(const rt_plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    print_plan(f, p);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
