/* pipeline.c - one step of a pipeline with the requested timing, checks and dumps. */
#include "ir/base/pipeline.h"

#include <string.h>
#include <time.h>

static ampc_status write_dump(const pipeline *p, int step, const char *name, const char *text, arena *scratch)
{
    const char *path = arena_printf(scratch, "%s/%02d-%s.%s", p->options->dump_dir, step + 1, name, p->extension);
    return p->options->save(path, text, strlen(text), p->diag);
}

/* `before`: the text before the step, if changes are dumped. */
static ampc_status dump(const pipeline *p, int step, const char *name, const char *before, arena *scratch)
{
    const pipeline_options *o = p->options;
    const bool named = o->dump_after && (strcmp(o->dump_after, "all") == 0 || strcmp(o->dump_after, name) == 0);
    if (!named && !o->dump_changed) return AMPC_OK;
    const char *text = p->print(p->subject, scratch);
    if (!text) return AMPC_NO_MEMORY;
    if (!named && before && strcmp(before, text) == 0) return AMPC_OK;
    if (o->dump_dir) return write_dump(p, step, name, text, scratch);
    if (o->dumps) fprintf(o->dumps, "%s%s%s%s%s", p->title[0], name, p->title[1], text, p->title[2]);
    return AMPC_OK;
}

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

ampc_status pipeline_run_step(const pipeline *p, int step, const char *name, arena *scratch)
{
    const pipeline_options *o = p->options;
    const char *before = o->dump_changed ? p->print(p->subject, scratch) : NULL;
    const double start = milliseconds();
    TRY(p->run(p->subject, step));
    const double ran = milliseconds();
    if (o->verify_each) TRY(p->verify(p->subject, name));
    if (o->timing && o->times)
        fprintf(o->times, "%-17s %8.3f ms  verify %8.3f ms\n", name, ran - start, milliseconds() - ran);
    TRY(dump(p, step, name, before, scratch));
    return o->roundtrip_each && p->round_trip ? p->round_trip(p->subject, name, scratch) : AMPC_OK;
}
