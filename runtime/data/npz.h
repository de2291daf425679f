/* npz.h - NumPy's .npz files: zip archives of NAME.npy members; reads stored and deflated, writes stored members. */
#ifndef RT_NPZ_H
#define RT_NPZ_H

#include "ir/base/diag.h"
#include "runtime/data/array.h"

/* Strings that predictions have besides arrays. */
#define RT_NPZ_CLASS_NAMES "class_names"

/* Reads every member in file order, named without ".npy", but no class names. Rejects duplicate names, encrypted
 * members and members that are not .npy files. `u2_as` as in rt_npy_read. */
ampc_status rt_npz_read(const char *path, ir_dtype u2_as, diag *d, rt_arrays *out);

/* Written atomically and reproducibly (all dates are 1980-01-01). Array names become member names unchanged. */
ampc_status rt_npz_write(const char *path, const rt_array *arrays, size_t count, diag *d);

#endif
