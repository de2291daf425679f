/* print.c - prints a plan as a table, for people and expect tests. A star marks a hoisted step.
 *
 * An unfinished plan may have no buffers or no offsets yet; the table omits them. */
#include "ir/ops/formulas.h"
#include "ir/ops/shape_text.h"
#include "runtime/plan/plan_edit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_view(FILE *f, const k_view *v)
{
    char shape[IR_SHAPE_TEXT];
    fprintf(f, "%s%s", ir_shape_text(shape, ir_dtype_name(v->dtype), v->rank, v->dims), v->packed ? " packed" : "");
}

/* Prints where a part of a value begins, in bytes, and its strides, in elements. */
static void print_part(FILE *f, const k_view *v, int64_t at)
{
    fprintf(f, " from %" PRId64 " by", at);
    for (int i = 0; i < v->rank; i++) fprintf(f, "%c%" PRId64, i ? ',' : ' ', v->strides[i]);
}

/* Prints a result as %x, storage or an input as @w. A prime marks a value that the plan has added. */
static void print_value(FILE *f, const rt_plan *p, uint32_t id)
{
    if (id == RT_NO_VALUE) {
        fputc('_', f);
        return;
    }
    const rt_value *v = &p->values[id];
    fprintf(f, "%c%s%s", rt_is_external(v) ? '@' : '%', v->value->name, v->derived ? "'" : "");
}

static void print_buffer(FILE *f, const rt_plan *p, int buffer)
{
    if (buffer == RT_NO_BUFFER) {
        fputs("dropped", f);
        return;
    }
    const rt_buffer *b = &p->buffers[buffer];
    if (b->home == RT_ARENA && !p->has_offsets) fprintf(f, "?+%" PRId64, b->bytes);
    else if (b->home == RT_ARENA || b->home == RT_PERSISTENT)
        fprintf(f, "%s%" PRId64 "+%" PRId64, b->home == RT_PERSISTENT ? "kept " : "", b->offset, b->bytes);
    else if (b->home == RT_STORAGE) fprintf(f, "@%s", p->graph->module->storage.items[b->index]->name);
    else if (b->home == RT_PACK) fprintf(f, "pack %" PRIu32 "+%" PRId64, b->index, b->bytes);
    else if (b->home == RT_CARRIED) fprintf(f, "@%s", p->values[p->carried[b->index]].value->name);
    else fprintf(f, "@%s", p->graph->inputs.items[b->index]->name);
}

/* Returns the operand whose buffer the result overwrites, or RT_NO_VALUE. */
static uint32_t overwritten(const rt_step *s, int k)
{
    for (int j = 0; j < s->n_in; j++)
        if (s->in_buffer[j] != RT_NO_BUFFER && s->in_buffer[j] == s->out_buffer[k]) return s->in_value[j];
    return RT_NO_VALUE;
}

/* Prints operands by name, earlier instructions by number, and the op that an activation follows by its name. */
static void print_program(FILE *f, const rt_plan *p, const rt_step *s)
{
    for (int i = 0; i < s->fused->n_code; i++) {
        const k_instruction *c = &s->fused->code[i];
        fprintf(f, "        .%d = %s", i, ir_op_label(c->op, c->attr));
        for (int j = 0; j < c->n_arg; j++) {
            fputs(j ? ", " : " ", f);
            if (c->arg[j] == K_NO_ARG) fputc('_', f);
            else if (c->arg[j] == K_ACCUMULATOR) fputs(rt_step_name(s), f);
            else if (c->arg[j] >= 0) fprintf(f, ".%d", c->arg[j]);
            else print_value(f, p, s->in_value[s->fused->operands[~c->arg[j]].in]);
        }
        fprintf(f, " : %s\n", ir_dtype_name(c->type));
    }
}

static void print_location(FILE *f, const rt_plan *p, const rt_step *s, int k)
{
    const uint32_t over = overwritten(s, k);
    fputs(" at ", f);
    print_buffer(f, p, s->out_buffer[k]);
    if (over == RT_NO_VALUE) return;
    fputs(" over ", f);
    print_value(f, p, over);
}

static void print_result(FILE *f, const rt_plan *p, const rt_step *s, int k)
{
    static const char *const folds[] = {"", " = row sum", " = row mean"};
    fputs("        ", f);
    print_value(f, p, s->out_value[k]);
    if (s->fused && k < s->fused->n_results)
        fprintf(f, "%s of .%d", folds[s->fused->results[k].fold], s->fused->results[k].from);
    fputs(" : ", f);
    print_view(f, &s->out[k]);
    if (s->out[k].strides) print_part(f, &s->out[k], s->out_at[k]);
    if (p->buffers) print_location(f, p, s, k);
    fputc('\n', f);
}

static void print_step(FILE *f, const rt_plan *p, int i)
{
    const rt_step *s = p->steps[i];
    fprintf(f, "%4d%s%-20s", i, s->hoisted ? "* " : "  ", rt_step_name(s));
    for (int j = 0; j < s->n_in; j++) {
        fputs(j ? ", " : " ", f);
        print_value(f, p, s->in_value[j]);
        if (s->in[j].strides) print_part(f, &s->in[j], s->in_at[j]);
        if (s->in[j].as != IR_NO_DTYPE) fprintf(f, " as %s", ir_dtype_name(s->in[j].as));
    }
    if (p->joins && p->joins[i] >= 0) fprintf(f, "  joins %d", p->joins[i]);
    if (s->workspace != RT_NO_BUFFER) {
        fputs("  workspace ", f);
        print_buffer(f, p, s->workspace);
    }
    if (p->buffers && !s->hoisted) fprintf(f, "  bytes %" PRId64, rt_step_cost(p, s).bytes);
    fputc('\n', f);
    if (s->fused) print_program(f, p, s);
    for (int k = 0; k < s->n_out; k++)
        if (s->out_value[k] != RT_NO_VALUE) print_result(f, p, s, k);
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
    if (p->parts) fprintf(f, " part %d of %d", p->part + 1, p->parts->count);
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] >= 0) fprintf(f, " %s=%" PRId64, ir_dim_symbol_name(p->graph->module->dims, i), p->sizes[i]);
    fprintf(f, ": %d steps", p->n_steps);
    if (p->has_offsets) fprintf(f, ", arena %" PRId64 " bytes", p->arena_bytes);
    if (p->has_offsets && p->n_hoisted > p->n_packs) fprintf(f, ", kept %" PRId64 " bytes", p->persistent_bytes);
    if (p->has_offsets && p->n_packs) fprintf(f, ", packs %" PRId64 " bytes", rt_plan_pack_bytes(&p, 0));
    fputc('\n', f);
    print_copies(f, p, "keep", p->before, p->n_before);
    for (int i = 0; i < p->n_steps; i++) print_step(f, p, i);
    if (p->joins && p->joins[p->n_steps] >= 0) fprintf(f, "join %d\n", p->joins[p->n_steps]);
    for (int i = 0; i < p->n_outputs; i++) {
        if (p->outputs[i].name) fprintf(f, "output \"%s\" at ", p->outputs[i].name);
        else fprintf(f, "carry %%%s at ", p->values[p->outputs[i].carries].value->name);
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
