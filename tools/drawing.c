/* drawing.c - -o model.dot and -o model.svg. Graphviz reads and writes unnamed temporary files, so no pipe can block
 * and the output file is created only when the drawing is complete. */
#include "tools/drawing.h"

#include "ir/base/input_file.h"
#include "runtime/files/atomic_file.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static ampc_status io_error(tool *t, const char *what) { return diag_errno(t->diag, DIAG_FILE(t->o.output), what); }

static ampc_status run_graphviz(tool *t, FILE *in, FILE *out)
{
    static const char *const arguments[] = {"dot", "-Tsvg", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 0;
    if ((errno = posix_spawn_file_actions_init(&actions)) != 0) return io_error(t, "cannot run 'dot'");
    errno = posix_spawn_file_actions_adddup2(&actions, fileno(in), STDIN_FILENO);
    if (!errno) errno = posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
    if (!errno) errno = posix_spawnp(&child, "dot", &actions, NULL, (char **)arguments, environ);
    int failed = errno;
    posix_spawn_file_actions_destroy(&actions);
    errno = failed;
    if (failed == ENOENT)
        return diag_error(t->diag, AMPC_IO, DIAG_FILE(t->o.output),
                          "writing .svg requires Graphviz' program 'dot', which is not installed; write .dot instead");
    if (failed) return io_error(t, "cannot run 'dot'");
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return io_error(t, "cannot wait for 'dot'");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return AMPC_OK;
    return diag_error(t->diag, AMPC_IO, DIAG_FILE(t->o.output), "'dot' failed");
}

static ampc_status save_all(tool *t, FILE *f)
{
    char *bytes;
    size_t size;
    rewind(f);
    TRY(input_read_stream(f, t->o.output, SIZE_MAX / 2, t->diag, &bytes, &size));
    const ampc_status status = rt_atomic_save(t->o.output, bytes, size, t->diag);
    free(bytes);
    return status;
}

static ampc_status write_svg(tool *t, const char *text, FILE *in, FILE *out)
{
    if (!in || !out || fputs(text, in) < 0 || fflush(in) != 0 || fseek(in, 0, SEEK_SET) != 0)
        return io_error(t, "cannot write a temporary file");
    TRY(run_graphviz(t, in, out));
    return save_all(t, out);
}

ampc_status drawing_write(tool *t, bool svg)
{
    const char *text = pass_draw(t->module, t->compile, t->arena);
    if (!svg) return rt_atomic_save(t->o.output, text, strlen(text), t->diag);
    FILE *in = tmpfile(), *out = tmpfile();
    ampc_status status = write_svg(t, text, in, out);
    if (in) fclose(in);
    if (out) fclose(out);
    return status;
}
