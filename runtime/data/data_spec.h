/* data_spec.h - parser for the value of --data; private to the data layer.
 *
 * SPEC is KIND:ARGUMENT,KEY=VALUE,... The parser checks each KEY against those of the kind and each VALUE against its
 * type, so openers read options that are present and valid. */
#ifndef RT_DATA_SPEC_H
#define RT_DATA_SPEC_H

#include "ir/base/diag.h"

#include <stdint.h>

/* What follows "KIND:". */
typedef enum rt_spec_form {
    RT_SPEC_NOTHING, /* only options */
    RT_SPEC_PATH,    /* a path, then options */
    RT_SPEC_PATHS,   /* paths, each an item without '=' */
    RT_SPEC_FILES,   /* NAME=FILE, for each key that is not an option */
} rt_spec_form;

/* The part of a kind of data that the parser needs. */
typedef struct rt_spec_kind {
    const char *name; /* "idx" */
    rt_spec_form form;
    const char *argument; /* what follows the name, for messages: ":DIR" */
    const char *options;  /* the keys that it accepts besides those of every kind, separated by spaces */
} rt_spec_kind;

typedef struct rt_spec_item {
    const char *key, *value;
} rt_spec_item;

/* All strings but `spec` are pointers into `text`. */
typedef struct rt_data_spec {
    const char *spec; /* as given; the caller's */
    size_t kind;      /* index of the kind */
    char *text;
    const char *path;    /* RT_SPEC_PATH */
    rt_spec_item *files; /* RT_SPEC_PATHS, RT_SPEC_FILES: names (for paths, NULL) and files */
    size_t n_files;
    rt_spec_item *options;
    size_t n_options;
} rt_data_spec;

/* Fails with AMPC_USAGE, with the reason, or AMPC_NO_MEMORY. The caller clears `out` also on failure. */
ampc_status rt_data_spec_parse(const char *spec, const rt_spec_kind *kinds, size_t n, diag *d, rt_data_spec *out);
/* Only options of every kind of data, and `classes`: "KEY=VALUE,..", or an empty string. */
ampc_status rt_data_spec_parse_options(const char *options, diag *d, rt_data_spec *out);
void rt_data_spec_clear(rt_data_spec *s);

/* The value of an option, or `otherwise` if it is not given; the last one if it is given twice. */
const char *rt_spec_text(const rt_data_spec *s, const char *key, const char *otherwise);
double rt_spec_number(const rt_data_spec *s, const char *key, double otherwise);
uint64_t rt_spec_count(const rt_data_spec *s, const char *key, uint64_t otherwise);
/* The values of the 256 levels of a pixel by channel, (level / divide - mean) / std. Fails with AMPC_USAGE if mean or
 * std has neither one number nor one per channel, or a value is not finite in f32. */
enum { RT_LEVELS = 256, RT_MAX_CHANNELS = 3 };
ampc_status rt_spec_levels(const rt_data_spec *s, int channels, float out[][RT_LEVELS], diag *d);
bool rt_spec_has(const rt_data_spec *s, const char *key);

#endif
