/* training.c - lookup in what a module knows about its training. */
#include "ir/graph/training.h"

#include <stdio.h>
#include <string.h>

const char *const ir_compared_words[] = {"nothing", "classes", "binary", "probabilities", "values", NULL};

const ir_loss *ir_training_primary(const ir_training *t)
{
    for (size_t i = 0; i < t->losses.count; i++)
        if (t->losses.items[i].compared == IR_COMPARED_classes) return &t->losses.items[i];
    return t->losses.count ? t->losses.items : NULL;
}

const char *ir_training_precision(const ir_training *t, char text[IR_PRECISION_TEXT])
{
    if (!t->level) return NULL;
    const bool low = t->low != IR_NO_DTYPE;
    snprintf(text, IR_PRECISION_TEXT, "%s%s%s", t->level, low ? " " : "", low ? ir_dtype_name(t->low) : "");
    return text;
}

const char *ir_training_model(const ir_training *t, const char *name)
{
    for (size_t i = 0; i < t->models.count; i++)
        if (strcmp(t->models.items[i].name, name) == 0) return t->models.items[i].path;
    return NULL;
}

static ir_opset *find_opset(const ir_training *t, const char *domain)
{
    for (size_t i = 0; i < t->opsets.count; i++)
        if (strcmp(t->opsets.items[i].domain, domain) == 0) return &t->opsets.items[i];
    return NULL;
}

int64_t ir_training_opset(const ir_training *t, const char *domain)
{
    const ir_opset *o = find_opset(t, domain);
    return o ? o->version : 0;
}

void ir_training_set_opset(ir_training *t, arena *a, const char *domain, int64_t version)
{
    ir_opset *o = find_opset(t, domain);
    if (o) o->version = version;
    else vec_push(a, &t->opsets, ((ir_opset){arena_strdup(a, domain), version}));
}

const ir_mean *ir_training_mean(const ir_training *t, const char *name)
{
    for (size_t i = 0; i < t->means.count; i++)
        if (strcmp(t->means.items[i].output, name) == 0) return &t->means.items[i];
    return NULL;
}

int ir_normalization_dims(const ir_normalization *n, int64_t *dims)
{
    if (n->count == 1) return 0;
    dims[0] = n->count;
    for (int i = 1; i <= n->after; i++) dims[i] = 1;
    return n->after + 1;
}
