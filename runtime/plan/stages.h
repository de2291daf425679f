/* stages.h - the functions of the stages. If a stage fails without reporting why, the runner reports it. */
#ifndef RT_STAGES_H
#define RT_STAGES_H

#include "runtime/plan/plan_edit.h"

#define STAGE(name, when, text, after) ampc_status rt_stage_##name(rt_plan *p, diag *d);
#include "runtime/plan/stages.def"

#endif
