/* host.c - a program that uses the library under tight system limits, for tests/limits/run-limits.
 *
 *   host threads MODEL         opens a session of four threads, and one that requires four
 *   host files MODEL FOLDER    saves beyond the file size limit and checks the files that remain
 *   host broken-pipe CMD..     runs a program whose standard output has no reader */
#include <ampc.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int good, const char *what, const ampc_context *c)
{
    if (good) return;
    fprintf(stderr, "host: %s: %s\n", what, ampc_context_message(c));
    exit(1);
}

static void print(void *user, ampc_log_level level, const char *message)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", message);
}

static ampc_module *compile(const char *model, ampc_context **c)
{
    const ampc_context_options log = {.struct_size = sizeof log, .log = print};
    const ampc_compile_options how = {.struct_size = sizeof how, .loss = "ce"};
    ampc_module *m = NULL;
    must(ampc_context_create(&log, c) == AMPC_OK, "context", NULL);
    must(ampc_module_import(*c, model, NULL, 0, &m) == AMPC_OK, "import", *c);
    must(ampc_module_compile(m, &how) == AMPC_OK, "compile", *c);
    return m;
}

static ampc_status train(ampc_session *s)
{
    const ampc_train_options how = {.struct_size = sizeof how, .data = "synthetic,rows=64", .steps = 1, .batch = 32};
    return ampc_train(s, &how);
}

static void with_few_threads(const char *model)
{
    ampc_context *c;
    ampc_module *m = compile(model, &c);
    ampc_session *s = NULL;
    const ampc_session_options four = {.struct_size = sizeof four, .threads = 4};
    const ampc_session_options exactly = {.struct_size = sizeof exactly, .deterministic = 4};
    must(ampc_session_open(m, &exactly, &s) == AMPC_DEVICE, "exactly four threads", c);
    must(ampc_session_open(m, &four, &s) == AMPC_OK, "four threads", c);
    must(train(s) == AMPC_OK, "train", c);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
}

/* Returns the bytes of a file in a new buffer; *n is 0 if the file cannot be read. */
static char *content(const char *path, size_t *n)
{
    char *bytes = calloc(1, 1 << 22);
    FILE *f = fopen(path, "r");
    *n = f && bytes ? fread(bytes, 1, 1 << 22, f) : 0;
    if (f) fclose(f);
    return bytes;
}

/* The host's own write still raises the fatal signal, so the library restored the signal disposition. */
static int dies_of_its_own_write(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        static char bytes[1 << 16];
        FILE *f = fopen(path, "w");
        if (f) fwrite(bytes, 1, sizeof bytes, f);
        _exit(f ? fclose(f) != 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
}

static void past_the_limit(const char *model, const char *folder)
{
    char checkpoint[256], exported[256], other[256];
    ampc_context *c;
    ampc_module *m = compile(model, &c);
    ampc_session *s = NULL;
    size_t before, after;
    sigset_t waiting;
    const struct rlimit little = {4096, 4096};
    snprintf(checkpoint, sizeof checkpoint, "%s/c.safetensors", folder);
    snprintf(exported, sizeof exported, "%s/e.onnx", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    must(ampc_session_open(m, NULL, &s) == AMPC_OK, "open", c);
    must(ampc_checkpoint_save(s, checkpoint, NULL) == AMPC_OK, "save", c);
    must(train(s) == AMPC_OK, "train", c);
    char *old = content(checkpoint, &before);
    must(setrlimit(RLIMIT_FSIZE, &little) == 0, "setrlimit", c);
    must(ampc_checkpoint_save(s, checkpoint, NULL) == AMPC_IO, "save past the limit", c);
    must(strstr(ampc_context_message(c), "File too large") != NULL, "its message", c);
    must(ampc_export_onnx(s, exported) == AMPC_IO, "export past the limit", c);
    must(access(exported, F_OK) != 0, "nothing is left of it", c);
    char *new = content(checkpoint, &after);
    must(before == after && memcmp(old, new, before) == 0, "the old checkpoint is whole", c);
    must(ampc_checkpoint_load(s, checkpoint, NULL) == AMPC_OK, "and loads", c);
    sigpending(&waiting);
    must(!sigismember(&waiting, SIGXFSZ), "no signal waits", c);
    must(dies_of_its_own_write(other), "the host's signals are its own", c);
    free(old);
    free(new);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
}

static int with_broken_pipe(char **command)
{
    int ends[2];
    if (pipe(ends) != 0) return 1;
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    execvp(command[0], command);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "threads") == 0) with_few_threads(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "files") == 0) past_the_limit(argv[2], argv[3]);
    else if (argc > 2 && strcmp(argv[1], "broken-pipe") == 0) return with_broken_pipe(argv + 2);
    else return 2;
    return 0;
}
