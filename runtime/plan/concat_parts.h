/* concat_parts.h - operands of a concat that are computed where the concat would copy them. */
#ifndef RT_CONCAT_PARTS_H
#define RT_CONCAT_PARTS_H

#include "runtime/plan/plan_edit.h"

/* Chooses the results that become parts of the result of a concat, and extends the last use of that. Last uses are
 * known; the marks of values are 0. */
void rt_concat_find_parts(rt_plan *p);
/* Returns the value whose memory has the root value as a part, directly or indirectly, and the position in bytes; the
 * value itself if it is not a part. */
uint32_t rt_concat_whole(const rt_plan *p, uint32_t value, int64_t *at);
/* The bytes that a concat reads, and writes, once it has buffers: those of operands that are not in their place; -1:
 * the step is not a concat. */
int64_t rt_concat_bytes(const rt_plan *p, const rt_step *s);

#endif
