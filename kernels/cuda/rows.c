/* rows.c - rows along an axis: choice of kernel and number of blocks. */
#include "kernels/cuda/cuda.h"
#include "kernels/walk.h"

cuda_rows cuda_rows_of(const k_view *v, int64_t axis)
{
    const k_axis a = k_axis_of(v, axis);
    return (cuda_rows){a.outer, a.length, a.inner};
}

const char *cuda_rows_kernel(const cuda_rows *r)
{
    return r->inner != 1 ? "lane" : r->length > ROW_IN_WARP ? "block" : "warp";
}

int64_t cuda_rows_blocks(const cuda_rows *r)
{
    if (r->inner != 1) return cuda_blocks(r->outer * ((r->inner + 31) / 32), 1);
    return cuda_blocks(r->outer, r->length > ROW_IN_WARP ? 1 : ROW_WARPS);
}
