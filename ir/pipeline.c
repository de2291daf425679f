/* pipeline.c - one step of a pipeline with the requested timing, checks and dumps. */
#include "ir/pipeline.h"

#include "ir/write_guard.h"

#include <string.h>
#include <time.h>

static ampc_status write_dump(const pipeline *p, int step, const char *name, const char *text, arena *scratch)
{
    const char *path = arena_printf(scratch, "%s/%02d-%s.ir", p->dump_dir, step + 1, name);
    FILE *f = fopen(path, "w");
    if (!f) return diag_errno(p->diag, DIAG_FILE(path), "cannot write");
    write_guard guard = write_guard_begin();
    bool ok = fputs(text, f) >= 0;
    ok &= fclose(f) == 0;
    write_guard_end(&guard);
    return ok ? AMPC_OK : diag_error(p->diag, AMPC_IO, DIAG_FILE(path), "write failed");
}

/* `before`: the text before the step, if changes are dumped. */
static ampc_status dump(const pipeline *p, int step, const char *name, const char *before, arena *scratch)
{
    bool named = p->dump_after && (strcmp(p->dump_after, "all") == 0 || strcmp(p->dump_after, name) == 0);
    if (!named && !p->dump_changed) return AMPC_OK;
    const char *text = p->print(p->subject, scratch);
    if (!named && before && strcmp(before, text) == 0) return AMPC_OK;
    if (p->dump_dir) return write_dump(p, step, name, text, scratch);
    if (p->text) fprintf(p->text, "# after %s\n%s", name, text);
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
    const char *before = p->dump_changed ? p->print(p->subject, scratch) : NULL;
    double start = milliseconds();
    TRY(p->run(p->subject, step));
    double ran = milliseconds();
    if (p->verify_each) TRY(p->verify(p->subject));
    if (p->timing && p->text)
        fprintf(p->text, "%-12s %8.2f ms  verify %8.2f ms\n", name, ran - start, milliseconds() - ran);
    TRY(dump(p, step, name, before, scratch));
    return p->roundtrip_each ? p->round_trip(p->subject, name, scratch) : AMPC_OK;
}
