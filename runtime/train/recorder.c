/* recorder.c - passes steps and evaluations on to the files that were asked for. */
#include "runtime/train/recorder.h"

#include "runtime/backend/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 128 };

struct rt_recorder {
    rt_log *log;
    rt_events *events;
    diag *d;
};

static const char *or_empty(const char *text) { return text ? text : ""; }

static ampc_status open_log(rt_recorder *r, const rt_recorder_options *o, const rt_trainer *t, const ir_module *m,
                            uint64_t step)
{
    char precision[IR_PRECISION_TEXT];
    const rt_log_field fields[] = {
        {"model", or_empty(o->model), 0},
        {"data", or_empty(o->data), 0},
        {"amp", or_empty(ir_training_precision(&m->training, precision)), 0},
        {"batch", NULL, (double)rt_trainer_state(t)->batch},
        {"steps", NULL, (double)rt_trainer_steps(t)},
        {"seed", NULL, (double)o->seed},
        {"schedule", rt_trainer_state(t)->schedule, 0},
    };
    char *folder = o->checkpoints ? realpath(o->checkpoints, NULL) : NULL;
    if (o->checkpoints && !folder) return diag_errno(r->d, DIAG_FILE(o->checkpoints), "cannot open the directory");
    const rt_log_resume resume = {folder, o->resumed ? step : RT_LOG_NOT_RESUMED};
    ampc_status s = rt_log_open(o->log, fields, sizeof fields / sizeof *fields, folder ? &resume : NULL, r->d, &r->log);
    free(folder);
    return s;
}

ampc_status rt_recorder_open(const rt_recorder_options *o, const rt_trainer *t, const ir_module *m, uint64_t step,
                             diag *d, rt_recorder **out)
{
    rt_recorder *r = calloc(1, sizeof *r);
    if (!r) return rt_no_memory(d);
    r->d = d;
    ampc_status s = o->log ? open_log(r, o, t, m, step) : AMPC_OK;
    if (s == AMPC_OK && o->tensorboard) s = rt_events_open(o->tensorboard, step, d, &r->events);
    if (s == AMPC_OK) *out = r;
    else (void)rt_recorder_close(r);
    return s;
}

/* The fields of a step over which a chart is drawn; a norm that was not measured has none. */
static ampc_status write_step_events(rt_recorder *r, const rt_step_record *s)
{
    char tags[RT_STEP_FIELDS][TAG];
    rt_scalar scalars[RT_STEP_FIELDS];
    size_t n = 0;
    for (int i = 0; i < RT_STEP_FIELDS; i++) {
        const rt_step_field *f = &rt_step_fields[i];
        if (!f->charted || (f->offset == offsetof(rt_step_record, grad_norm) && isnan(s->grad_norm))) continue;
        snprintf(tags[n], TAG, "train/%s", f->key);
        scalars[n] = (rt_scalar){tags[n], rt_step_value(f, s)};
        n++;
    }
    return rt_events_write(r->events, s->step, scalars, n);
}

ampc_status rt_recorder_step(rt_recorder *r, const rt_step_record *s)
{
    if (r->log) TRY(rt_log_step(r->log, s));
    return r->events ? write_step_events(r, s) : AMPC_OK;
}

/* The values that are numbers, as scalars. */
static ampc_status write_events(rt_recorder *r, uint64_t step, const rt_eval *eval)
{
    rt_scalar tagged[RT_EVAL_VALUES];
    char tags[RT_EVAL_VALUES][TAG];
    size_t n = 0;
    for (int i = 0; i < eval->count; i++) {
        if (!isfinite(eval->value[i].value)) continue;
        snprintf(tags[n], TAG, "eval/%s", eval->value[i].name);
        tagged[n] = (rt_scalar){tags[n], eval->value[i].value};
        n++;
    }
    return rt_events_write(r->events, step, tagged, n);
}

ampc_status rt_recorder_evaluation(rt_recorder *r, uint64_t step, const rt_eval *eval)
{
    if (r->log) TRY(rt_log_eval(r->log, step, eval));
    return r->events ? write_events(r, step, eval) : AMPC_OK;
}

ampc_status rt_recorder_sync(rt_recorder *r)
{
    if (r->log) TRY(rt_log_sync(r->log));
    return r->events ? rt_events_sync(r->events) : AMPC_OK;
}

ampc_status rt_recorder_close(rt_recorder *r)
{
    if (!r) return AMPC_OK;
    const ampc_status log = rt_log_close(r->log), events = rt_events_close(r->events);
    free(r);
    return log != AMPC_OK ? log : events;
}
