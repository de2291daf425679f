/* test_binding.c - checks that inference must defer while a size is symbolic are made when the symbol is bound:
 * before anything runs, by the rule of the op, with the node and the sizes in the message. */

#include "runtime/plan/plan.h"
#include "tests/test.h"

/* A graph with one node `NODE` that reads @x (and @dy), with symbol N bound. `words` NULL: planning succeeds. */
typedef struct row {
    const char *inputs, *node;
    int64_t n;
    const char *words;
} row;

static ampc_status plan(const row *r, diag *d)
{
    char text[1024], error[256] = "";
    const k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    ir_module *module;
    rt_plan *p = NULL;
    snprintf(text, sizeof text, "ampc-ir 3\ngraph @g(%s) {\nforward:\n  %s\n  output \"y\" = %%y\n}\n", r->inputs,
             r->node);
    if (ir_parse(text, strlen(text), "binding.ir", d, &module) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    const rt_plan_request request = {
        .graph = module->graphs.items[0], .sizes = &r->n, .backend = rt_backend_find("cpu", &(int){0}), .ctx = &ctx};
    ampc_status status = rt_plan_make(&request, d, &p);
    rt_plan_free(p);
    ir_module_free(module);
    return status;
}

static void run_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        diag *d = diag_new(NULL, NULL);
        const char *words = rows[i].words;
        ampc_status status = plan(&rows[i], d);
        if (status != (words ? AMPC_REJECTED : AMPC_OK) || (words && !strstr(diag_first_error(d), words)))
            fail_msg("%s with N=%lld: %s", rows[i].node, (long long)rows[i].n, diag_first_error(d));
        diag_free(d);
    }
}

#define RUN(rows) run_rows(rows, sizeof rows / sizeof *rows)

TEST(movement)
{
    static const row rows[] = {
        {"@x : f32[N]", "%y = slice @x {start=[N-5], size=[5], step=[1]} : f32[5]", 5, NULL},
        {"@x : f32[N]", "%y = slice @x {start=[N-5], size=[5], step=[1]} : f32[5]", 3,
         "node 'y' (slice): error: axis 0: index -2 is outside of 3 (N=3)"},
        {"@x : f32[N]", "%y = slice @x {start=[0], size=[4], step=[2]} : f32[4]", 7, NULL},
        {"@x : f32[N]", "%y = slice @x {start=[0], size=[4], step=[2]} : f32[4]", 6, "index 6 is outside of 6 (N=6)"},
        {"@x : f32[N]", "%y = slice @x {start=[N-1], size=[3], step=[-1]} : f32[3]", 2, "index -1 is outside of 2"},
        {"@x : f32[N]", "%y = slice @x {start=[2], size=[N-2], step=[1]} : f32[N-2]", 1,
         "size is out of range: -1 (N=1)"},
        {"@x : f32[5]", "%y = slice_grad @x {shape=[N], start=[N-5], step=[1]} : f32[N]", 4,
         "index -1 is outside of 4"},
        {"@x : f32[N]", "%y = pad @x {before=[-3], after=[0]} : f32[N-3]", 2, "cannot crop 3 of 2 (N=2)"},
        {"@x : f32[N]", "%y = pad @x {before=[-3], after=[4]} : f32[N+1]", 2, "cannot crop 3 of 2 (N=2)"},
        {"@x : f32[N]", "%y = pad @x {before=[1], after=[0], mode=\"edge\"} : f32[N+1]", 0, "no element to repeat"},
        {"@x : f32[N]", "%y, %z = split @x {sizes=[3, N-3]} : f32[3], f32[N-3]", 2, "sizes is out of range: -1"},
        {"@x : f32[N]", "%y = expand @x {shape=[N-4,N]} : f32[N-4,N]", 3, "shape is out of range: -1"},
        {"@x : f32[N]", "%y = iota {size=[N-4]} : i64[N-4]", 3, "size is out of range: -1"},
        {"@x : f32[N,1]", "%y = expand @x {shape=[N,N]} : f32[N,N]", 1 << 30, "is too large (N=1073741824)"},
    };
    RUN(rows);
}

TEST(windows)
{
    static const char *const max = "%y, %i = max_pool @x {kernel=[3], strides=[1], pads=[0,0], dilations=[1]}"
                                   " : f32[1,1,N-2], i64[1,1,N-2]";
    static const char *const average = "%y = avg_pool @x {kernel=[4], strides=[2], pads=[1,0], dilations=[1]}"
                                       " : f32[1,1,floor((N-1)/2)]";
    const row rows[] = {
        {"@x : f32[1,1,N]", max, 3, NULL},
        {"@x : f32[1,1,N]", max, 2, "axis 2: a window of 3 is larger than 2 padded elements (N=2)"},
        {"@x : f32[1,1,N]", average, 3, NULL},
        {"@x : f32[1,1,N]", average, 0, "a window of 4 is larger than 1 padded elements"},
        {"@x : f32[1,1,N], @w : f32[1,1,3]",
         "%y = conv @x, @w, _ {strides=[1], pads=[0,0], dilations=[1]} : f32[1,1,N-2]", 1,
         "a window of 3 is larger than 1 padded elements"},
    };
    RUN(rows);
}

/* Sizes that no dimension can have, and dimensions that no size yields. */
TEST(symbols)
{
    static const row rows[] = {
        {"@x : f32[N]", "%y = neg @x : f32[N]", 0, NULL},
        {"@x : f32[N]", "%y = neg @x : f32[N]", -1, "symbol 'N' is not determined"},
        {"@x : f32[N]", "%y = neg @x : f32[N]", INT64_C(1) << 31, "size 2147483648 of symbol 'N' exceeds the maximum"},
        {"@x : f32[N*N*N]", "%y = neg @x : f32[N*N*N]", INT32_MAX, "a dimension is too large for these sizes"},
    };
    RUN(rows);
}

int main(void)
{
    char error[256];
    if (cpu_open(error, sizeof error) != AMPC_OK) return 1;
    return test_run();
}
