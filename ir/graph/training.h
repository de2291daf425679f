/* training.h - what passes and runtime need to know about the training of a module: data of the module, which its text
 * has as statements at the head (docs/ir.md). */
#ifndef AMPC_TRAINING_H
#define AMPC_TRAINING_H

#include "ir/base/arena.h"
#include "ir/ops/dtype.h"

#include <stdbool.h>

typedef struct ir_names {
    const char *const *items;
    int count;
} ir_names;

/* How the output of a loss is compared with its target by accuracy and metrics. */
typedef enum ir_compared {
    IR_COMPARED_nothing,
    IR_COMPARED_classes,       /* scores of classes along an axis, with the index of one or probabilities */
    IR_COMPARED_binary,        /* scores of yes or no, */
    IR_COMPARED_probabilities, /* or their probabilities */
    IR_COMPARED_values         /* real numbers */
} ir_compared;

/* A term of a loss; those of the same name are added. Before pass loss, the losses of a recipe. */
typedef struct ir_loss {
    const char *name;            /* of the loss */
    const char *kind;            /* as in --loss; IR_LOSS_OF_GRAPH: an output of the model */
    const char *options;         /* of the kind, "KEY=VALUE,.."; "": none */
    const char *output, *target; /* NULL: by default; the target may be a number */
    double weight;
    ir_compared compared;
    int axis; /* of the classes */
    int line; /* in the recipe; 0: not of one */
} ir_loss;

#define IR_LOSS_OF_GRAPH "graph"

/* An optimizer of a recipe with its parameters and losses. */
typedef struct ir_trainer {
    ir_names globs;
    const char *optimizer; /* as in --optimizer, "NAME,KEY=VALUE,.."; NULL: the default */
    ir_names losses;       /* none: the loss of the graph */
    int line;              /* in the recipe; 0: not of one */
} ir_trainer;

/* An addend of a mean: factor * value / weight, which are outputs of @eval. */
typedef struct ir_addend {
    double factor;
    bool sum;                   /* value is a sum over the samples, and not divided */
    const char *value, *weight; /* no weight: value is a mean over the samples, unless it is a sum */
} ir_addend;

typedef struct ir_mean {
    const char *output; /* of @eval, which is not a mean over the samples itself */
    const ir_addend *addends;
    int count;
} ir_mean;

/* What --normalize does: the graph reads (x - shift) / scale instead of input x. The arrays have `count` elements, one
 * for each channel, or one for all; `after` dimensions follow that of the channels. */
typedef struct ir_normalization {
    const char *input; /* NULL: none */
    int count, after;
    float *shift, *scale;
} ir_normalization;

typedef struct ir_model_file {
    const char *name, *path;
} ir_model_file;

typedef enum ir_exporter {
#define EXPORTER(word, ...) IR_EXPORTER_##word,
#include "ir/graph/exported.def"
    IR_EXPORTER_COUNT
} ir_exporter;

typedef enum ir_fact {
#define FACT(word, one, many, cost) IR_FACT_##word,
#include "ir/graph/exported.def"
    IR_FACT_COUNT
} ir_fact;

/* What the exporter of the model did to the network. */
typedef struct ir_export {
    ir_exporter exporter;
    int64_t batch;                 /* the number of samples that it fixed; 0: none */
    bool untied;                   /* the importer has separated tensors that it had merged */
    ir_names facts[IR_FACT_COUNT]; /* to what each has happened */
} ir_export;

/* The opset of a domain of operators. */
typedef struct ir_opset {
    const char *domain; /* "": ONNX itself */
    int64_t version;
} ir_opset;

typedef struct ir_training {
    VEC(ir_opset) opsets; /* of the model file: ONNX's, and those of opaque nodes */
    const char *codes;    /* what the numbers of the data stand for, as JSON (docs/data.md); NULL: unknown */
    ir_export exported;
    const char *level;   /* of mixed precision, "O1"; NULL: not compiled yet */
    ir_dtype low;        /* IR_NO_DTYPE: none */
    const char *profile; /* of the lists, if it is not the default; NULL: the default */
    bool unfused;        /* a session runs every op as a step of its own */
    int64_t window;      /* micro-batches of a step; 0: there is no @accumulate */
    ir_normalization normalization;
    const char *recipe;        /* its file; NULL: the module is not made from one */
    VEC(ir_model_file) models; /* of the recipe */
    VEC(ir_loss) losses;
    VEC(ir_trainer) trainers;
    VEC(ir_mean) means;
} ir_training;

extern const char *const ir_compared_words[]; /* by ir_compared, terminated by NULL */

/* The term whose output and target are those of accuracy: the first one with classes, or else the first one; NULL:
 * there is none. */
const ir_loss *ir_training_primary(const ir_training *t);
/* "O1 f16", in `text`; NULL: not compiled yet. */
enum { IR_PRECISION_TEXT = 64 };
const char *ir_training_precision(const ir_training *t, char text[IR_PRECISION_TEXT]);
/* The file of a model of the recipe, or NULL. */
const char *ir_training_model(const ir_training *t, const char *name);
/* The opset of a domain in the model file; 0: unknown. */
int64_t ir_training_opset(const ir_training *t, const char *domain);
void ir_training_set_opset(ir_training *t, arena *a, const char *domain, int64_t version);
/* What output `name` of @eval is made of; NULL: it is a mean over the samples. */
const ir_mean *ir_training_mean(const ir_training *t, const char *name);
/* The dimensions of the two constants, [IR_MAX_RANK]; returns their number. */
int ir_normalization_dims(const ir_normalization *n, int64_t *dims);

#endif
