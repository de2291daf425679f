/* norms.h - what the stages fold_norms and split_norms share: a batch normalisation reduced to its statistics. */
#ifndef RT_NORMS_H
#define RT_NORMS_H

#include "runtime/plan/plan_edit.h"

/* Whether a batch normalisation can be divided: it computes y, and all parts can compute in one type. */
bool rt_norm_is_divisible(const rt_plan *p, const rt_step *s);
/* The type of the parts, as a vector with one element per channel. */
k_view rt_norm_vector(const rt_step *s);
/* Returns the vector of result k, adding it if the graph does not use it; RT_NO_VALUE: out of memory. */
uint32_t rt_norm_result(rt_plan *p, rt_step *s, int k);
/* Lets the step read its scale as a 1x1 image in place of x, which running statistics do not depend on. */
void rt_norm_drop_image(rt_plan *p, rt_step *s);
/* Makes a step that combines an image with a vector that has one element per channel, not in the plan yet. `x`: the
 * shape of the image. NULL: out of memory. */
rt_step *rt_norm_part(rt_plan *p, const ir_node *node, ir_op op, uint32_t image, uint32_t vector, const k_view *x,
                      uint32_t to);

#endif
