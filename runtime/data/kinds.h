/* kinds.h - the kinds of data that a SPEC can name: one row each, in kinds.c. */
#ifndef RT_KINDS_H
#define RT_KINDS_H

#include "runtime/data/column.h"

rt_opener rt_open_idx, rt_open_npz, rt_open_npy; /* array_files.c */
rt_opener rt_open_csv;                           /* csv.c */
rt_opener rt_open_text, rt_open_tokens;          /* tokens.c */
rt_opener rt_open_folder;                        /* folder.c */
rt_opener rt_open_tar;                           /* tar_samples.c */
rt_opener rt_open_synthetic;                     /* synthetic.c */

/* The form of a kind, such as "idx:DIR", by index; NULL past the last. */
const char *rt_kinds_text(int index);
/* The names of its keys, separated by blanks, likewise. */
const char *rt_kinds_keys(int index);
/* The keys of all kinds, likewise; data_spec.c. */
const struct setting *rt_data_key(int index);

/* Whether a text begins like a SPEC: with a kind and a colon, or a kind that has no argument. */
bool rt_kinds_detect(const char *text);
/* Parses the SPEC by the table of kinds; fails like rt_data_spec_parse. */
ampc_status rt_kinds_parse(const char *spec, diag *d, rt_data_spec *out);
/* Opens the data that a parsed SPEC names. */
rt_opener rt_kinds_open;

#endif
