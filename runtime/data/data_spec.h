/* data_spec.h - parser for the value of --data, KIND:ARGUMENT,KEY=VALUE,...; private to the data layer. */
#ifndef RT_DATA_SPEC_H
#define RT_DATA_SPEC_H

#include "ir/ops/settings.h"

/* What follows "KIND:". */
typedef enum rt_spec_form {
    RT_SPEC_NOTHING, /* only options */
    RT_SPEC_PATH,    /* a path, then options */
    RT_SPEC_PATHS,   /* paths, each an item without '=' */
    RT_SPEC_FILES,   /* NAME=FILE, for each key that is not an option */
} rt_spec_form;

#define RT_COMMON_KEYS "limit order validation split-seed permute-labels" /* of every kind */

/* The part of a kind of data that the parser needs. */
typedef struct rt_spec_kind {
    const char *name; /* "idx" */
    rt_spec_form form;
    const char *argument; /* what follows the name, for messages: ":DIR" */
    const char *keys;     /* of data_spec.c, separated by blanks */
} rt_spec_kind;

typedef struct rt_spec_item {
    const char *key, *value;
} rt_spec_item;

/* Values of the words of keys; without a value, 0 or NONE. */
enum { RT_ORDER_SHUFFLE, RT_ORDER_FILE };
enum { RT_ENCODE_NUMBER, RT_ENCODE_ONE_HOT };
enum { RT_HEADER_YES, RT_HEADER_NO };
enum { RT_FIT_CROP, RT_FIT_STRETCH };
enum { RT_TARGET_NONE = -1, RT_TARGET_INPUT };
enum { RT_DTYPE_NONE = -1, RT_DTYPE_U16, RT_DTYPE_U32 };
enum { RT_CHANNELS_NONE = -1, RT_CHANNELS_1, RT_CHANNELS_3 };
enum { RT_FLIP_NONE = -1, RT_FLIP_HORIZONTAL, RT_FLIP_VERTICAL, RT_FLIP_BOTH };

/* 0 or NULL: not given, where there is no other default. */
typedef struct rt_data_options {
    int64_t limit, context, stride, rows, crop, size[2];
    uint64_t split_seed, permute_labels;
    double validation, divide, resized_crop, mixup;
    const char *mean, *std, *label, *columns, *classes, *categories, *missing, *images, *masks, *delimiter;
    int target, order, encode, header, dtype, channels, fit, flip;
} rt_data_options;

/* All strings but `spec` are pointers into `text`. */
typedef struct rt_data_spec {
    const char *spec; /* as given; the caller's */
    size_t kind;      /* index of the kind */
    char *text;
    const char *path;    /* RT_SPEC_PATH */
    rt_spec_item *files; /* RT_SPEC_PATHS, RT_SPEC_FILES: names (for paths, NULL) and files */
    size_t n_files;
    settings read;
    rt_data_options o;
} rt_data_spec;

/* Fails with AMPC_USAGE, with the reason, or AMPC_NO_MEMORY. The caller clears `out` also on failure. */
ampc_status rt_data_spec_parse(const char *spec, const rt_spec_kind *kinds, size_t n, diag *d, rt_data_spec *out);
/* Only options of every kind of data, and `classes`: "KEY=VALUE,..", or an empty string. */
ampc_status rt_data_spec_parse_options(const char *options, diag *d, rt_data_spec *out);
void rt_data_spec_clear(rt_data_spec *s);

/* Whether the option is given. */
bool rt_spec_has(const rt_data_spec *s, const char *key);
/* The values of the 256 levels of a pixel by channel, (level / divide - mean) / std. Fails with AMPC_USAGE if mean or
 * std has neither one number nor one per channel, or a value is not finite in f32. */
enum { RT_LEVELS = 256, RT_MAX_CHANNELS = 3 };
ampc_status rt_spec_levels(const rt_data_spec *s, int channels, float out[][RT_LEVELS], diag *d);

#endif
