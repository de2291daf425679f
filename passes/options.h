/* options.h - what the user requests from a compilation. Options are read-only after parsing; the caller owns their
 * strings, which must outlive the compilation. */
#ifndef AMPC_OPTIONS_H
#define AMPC_OPTIONS_H

#include "ir/ops/dtype.h"
#include "ir/base/pipeline.h"

typedef enum pass_level { PASS_O0, PASS_O1, PASS_O2, PASS_OD } pass_level;
typedef enum pass_scaling { PASS_SCALE_DEFAULT, PASS_SCALE_DYNAMIC, PASS_SCALE_STATIC, PASS_SCALE_OFF } pass_scaling;
typedef enum pass_preset {
    PASS_PRESET_NONE,
    PASS_PRESET_TORCH,
    PASS_PRESET_PADDLE_1_8,
    PASS_PRESET_PADDLE_2,
    PASS_PRESET_PADDLE_3
} pass_preset;
typedef enum pass_mode { PASS_MODE_DEFAULT, PASS_MODE_FILE, PASS_MODE_TRAIN, PASS_MODE_EVAL } pass_mode;

typedef enum pass_placement { PASS_GREEDY, PASS_MINCUT } pass_placement;

/* Spellings of these values on the command line and in the C API, the default first; a NULL word terminates a table. */
typedef struct pass_word {
    const char *word;
    int value;
} pass_word;
extern const pass_word pass_levels[], pass_low_types[], pass_placements[], pass_scalings[], pass_presets[],
    pass_modes[];
bool pass_find_word(const pass_word *words, const char *word, int *value);

typedef struct pass_strings {
    const char *const *items;
    int count;
} pass_strings;

typedef struct compile_options {
    /* precision */
    pass_level level;
    ir_dtype low;        /* IR_f16 or IR_bf16 */
    const char *profile; /* a built-in list or "empty"; NULL: the base that the list files name, else ampc */
    pass_strings lists;  /* list files; later ones override earlier ones */
    int confined_lists;  /* so many of them, the first, are of a recipe: what they name must be in their folders */
    pass_strings white, black, gray; /* operators of --white, --black, --gray */
    pass_strings black_vars, fp32_nodes;
    bool keep_io_types;
    bool draws;               /* for pass_draw: keep the colours and skip the backward */
    bool wide;                /* compute in f64: the reference of a comparison; only with level O0 */
    bool plain_runtime;       /* only @infer, for a runtime whose ops compute in the type of their operands */
    pass_placement placement; /* how to place casts: the profile's order, or a minimum cut */
    bool white_soft;          /* minimum cut: white nodes may stay f32 where low precision does not pay off */
    const char *target;       /* minimum cut: device description (device.h); NULL: the default */
    /* training */
    const char *loss;           /* such as "ce[:OUTPUT[,LABEL]]"; NULL: none */
    const char *loss_output;    /* name of a scalar graph output that is the loss; NULL: none */
    const char *optimizer;      /* such as "sgd,lr=0.1,momentum=0.9"; NULL: sgd if there is a loss */
    pass_strings groups;        /* parameter groups, such as "*.bias,lr_factor=2,weight_decay=0" */
    bool no_decay;              /* no weight decay on normalization parameters and biases */
    double ema;                 /* decay of the moving averages of the parameters; 0: none */
    const char *normalize;      /* such as "x:divide=255,mean=A/B/C,std=A/B/C" (normalize.c); NULL: none */
    pass_strings train, freeze; /* globs over parameter names; held constants train only if given by full name */
    pass_scaling scaling;
    pass_preset preset; /* numbers of a loss scaler; none: those of the profile */
    double init_scale, incr_ratio, decr_ratio, min_scale, max_scale; /* 0: as in the preset or profile */
    int64_t incr_every, decr_every;                                  /* 0: as in the preset or profile */
    int64_t hysteresis;       /* overflowing steps in a row before each one shrinks the scale; 0: decr_every decides */
    int64_t accumulate;       /* micro-batches per step; 0: no graphs that accumulate gradients */
    const char *grad_penalty; /* such as "L2:input,0.1" (penalty.c); NULL: none */
    double clip_norm, clip_value; /* largest norm of all gradients, largest absolute value of each; 0: unlimited */
    pass_mode mode;
    const char *init; /* "file", "kaiming", "xavier" */
    uint64_t seed;
    bool fuse;
    /* output */
    const char *explain; /* node name, "all" or "params"; printed to the report's text */
    bool json;
    bool print_stats;
    pipeline_options pipeline; /* verify_each: in assertion builds and ampc-opt; else only after the last pass */
} compile_options;

compile_options compile_options_default(void);

#endif
