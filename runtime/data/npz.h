/* npz.h - NumPy's .npz files: a zip of NAME.npy members, read stored or deflated, written stored. */
#ifndef RT_NPZ_H
#define RT_NPZ_H

#include "ir/diag.h"
#include "runtime/data/array.h"

/* Every member, named without ".npy", in the order of the file; a duplicate name, a member that is no
 * .npy or an encrypted one is refused. `u2_as` as in rt_npy_read. */
ampc_status rt_npz_read(const char *path, ir_dtype u2_as, diag *d, rt_arrays *out);

/* Atomic; reproducible (all dates 1980-01-01). Names become member names as they are. */
ampc_status rt_npz_write(const char *path, const rt_array *arrays, size_t count, diag *d);

#endif
