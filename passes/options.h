/* options.h - what the user requests from a compilation. Options are read-only after parsing; the caller owns their
 * strings, which must outlive the compilation. */
#ifndef AMPC_OPTIONS_H
#define AMPC_OPTIONS_H

#include "ir/ops/dtype.h"
#include "ir/base/limits.h"
#include "ir/base/pipeline.h"
#include "ir/graph/training.h"

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

/* What each rank has only slices of. */
typedef enum pass_shard { PASS_SHARD_NOTHING, PASS_SHARD_OPTIMIZER } pass_shard;
/* The variance of the batch that a running variance follows. */
typedef enum pass_variance { PASS_VARIANCE_BIASED, PASS_VARIANCE_UNBIASED } pass_variance;
typedef enum pass_placement { PASS_GREEDY, PASS_MINCUT } pass_placement;

/* Spellings of these values on the command line and in the C API, the default first; a NULL word terminates a table. */
typedef struct pass_word {
    const char *word;
    int value;
} pass_word;
extern const pass_word pass_levels[], pass_low_types[], pass_placements[], pass_scalings[], pass_presets[],
    pass_modes[], pass_wire_types[], pass_shards[], pass_variances[];
bool pass_find_word(const pass_word *words, const char *word, int *value);

typedef ir_names pass_strings;

/* How the value of an option is stored; ir/base/options.def describes the kinds. */
typedef enum option_kind {
    OPTION_SET,   /* bool: true */
    OPTION_CLEAR, /* bool: false */
    OPTION_TEXT,  /* const char * */
    OPTION_ONCE,  /* const char *; two different values are an error */
    OPTION_WORD,  /* int: `value` of one of the words */
    OPTION_INT,   /* int64_t within the limits */
    OPTION_REAL,  /* double within the limits */
    OPTION_SEED,  /* uint64_t */
    OPTION_TEXTS, /* pass_strings: each use appends one */
    OPTION_ARRAY, /* the same */
    OPTION_LIST   /* pass_strings: comma-separated, appended */
} option_kind;

/* Of each kind: the type of the field, the default, and members of a row of a table. */
#define OPTION_AS_SET bool, false, .kind = OPTION_SET
#define OPTION_AS_CLEAR bool, true, .kind = OPTION_CLEAR
#define OPTION_AS_TEXT(initial) const char *, initial, .kind = OPTION_TEXT
#define OPTION_AS_NAME(initial) const char *, initial, .kind = OPTION_TEXT
#define OPTION_AS_ONCE const char *, NULL, .kind = OPTION_ONCE
#define OPTION_AS_WORD(type, initial, table) type, initial, .kind = OPTION_WORD, .words = (table)
#define OPTION_AS_INT(initial, ...) int64_t, initial, .kind = OPTION_INT, .limits = {__VA_ARGS__}
#define OPTION_AS_REAL(initial, ...) double, initial, .kind = OPTION_REAL, .limits = {__VA_ARGS__}
#define OPTION_AS_SEED uint64_t, 0, .kind = OPTION_SEED, .limits = {0, 9e18}
#define OPTION_AS_TEXTS pass_strings, {0}, .kind = OPTION_TEXTS
#define OPTION_AS_ARRAY pass_strings, {0}, .kind = OPTION_ARRAY
#define OPTION_AS_LIST pass_strings, {0}, .kind = OPTION_LIST
#define OPTION_FIELD(name, kind) OPTION_EXPAND(OPTION_FIELD_OF, name, OPTION_AS_##kind)
#define OPTION_DEFAULT(name, kind) OPTION_EXPAND(OPTION_DEFAULT_OF, name, OPTION_AS_##kind)
#define OPTION_ROW(kind) OPTION_EXPAND(OPTION_ROW_OF, , OPTION_AS_##kind)
#define OPTION_EXPAND(macro, ...) macro(__VA_ARGS__)
#define OPTION_FIELD_OF(name, type, ...) type name;
#define OPTION_DEFAULT_OF(name, type, initial, ...) .name = initial,
#define OPTION_ROW_OF(name, type, initial, ...) __VA_ARGS__

/* A number that is 0 or a text that is NULL limits nothing, and leaves what it sets as in the profile or preset. */
typedef struct compile_options {
#define COMPILE(name, field, member, kind, ...) OPTION_FIELD(field, kind)
#define COMPILER(name, field, kind, ...) OPTION_FIELD(field, kind)
#include "ir/base/options.def"
    int confined_lists; /* so many of the lists, the first, are of a recipe: what they name must be in their folders */
    bool tree;          /* for distribute: the sums of a step are balanced trees (--deterministic) */
    bool draws;         /* for pass_draw: keep the colours and skip the backward */
    bool reports;       /* for pass_write_report: record every node */
    bool spelled_out;   /* patterns stay the operators of the model (calibrate) */
    bool plain_runtime; /* only @infer, for a runtime whose ops compute in the type of their operands */
    const char *list_text;            /* a list file in memory, after `lists`; NULL: none */
    const struct pass_budget *budget; /* passes.h; NULL: the lists decide */
    pipeline_options pipeline;        /* verify_each: in assertion builds and ampc-opt; else only after the last pass */
} compile_options;

compile_options compile_options_default(void);

#endif
