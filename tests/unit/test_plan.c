/* test_plan.c - the buffers of a plan: overlaps, views, in-place results, storage, snapshots; and what planning
 * rejects. Plans are made from IR text. */

#include "runtime/plan/plan.h"
#include "tests/module.h"

typedef struct fixture {
    diag *d;
    ir_module *module;
    rt_plan *plan;
    char error[256];
    k_context ctx;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->d = diag_new(NULL, NULL);
    f->ctx = (k_context){.threads = 1, .error = f->error, .error_size = sizeof f->error};
    *state = f;
    return cpu_open(f->error, sizeof f->error) == AMPC_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    rt_plan_free(f->plan);
    ir_module_free(f->module);
    diag_free(f->d);
    free(f);
    return 0;
}

static ampc_status plan_outputs(fixture *f, const rt_selection *selection, const int64_t *sizes)
{
    const rt_plan_request request = {.graph = f->module->graphs.items[0],
                                     .selection = selection,
                                     .sizes = sizes,
                                     .backend = rt_backend_find("cpu", &(int){0}),
                                     .ctx = &f->ctx};
    return rt_plan_make(&request, f->d, &f->plan);
}

/* Plans the only graph; `sizes` are in the order of the symbols' first occurrence. */
static ampc_status plan_text(fixture *f, const char *text, const int64_t *sizes)
{
    f->module = test_module(f->d, text);
    return plan_outputs(f, NULL, sizes);
}

static void plan_ok(fixture *f, const char *text)
{
    int64_t sizes[] = {4, 3};
    if (plan_text(f, text, sizes) != AMPC_OK) fail_msg("%s", diag_first_error(f->d));
}

static const rt_value *value(const fixture *f, const char *name)
{
    for (uint32_t i = 0; i < f->plan->graph->value_ids; i++) {
        const rt_value *v = &f->plan->values[i];
        if (v->value && strcmp(v->value->name, name) == 0) return &f->plan->values[v->root];
    }
    fail_msg("no value %s", name);
    return NULL;
}

static rt_buffer buffer(const fixture *f, const char *name)
{
    int index = value(f, name)->buffer;
    assert_int_not_equal(index, RT_NO_BUFFER);
    return f->plan->buffers[index];
}

static bool same_buffer(const fixture *f, const char *a, const char *b)
{
    return value(f, a)->buffer == value(f, b)->buffer;
}

/* Asserts that simultaneously live buffers do not overlap, and that all are inside the arena. */
static void check_overlaps(const rt_plan *p)
{
    for (int i = 0; i < p->n_buffers; i++) {
        const rt_buffer *a = &p->buffers[i];
        if (a->home != RT_ARENA || a->bytes == 0) continue;
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->offset + a->bytes <= p->arena_bytes);
        for (int j = 0; j < i; j++) {
            const rt_buffer *b = &p->buffers[j];
            if (b->home != RT_ARENA || a->last < b->first || b->last < a->first) continue;
            assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset || b->bytes == 0);
        }
    }
}

#define TEST_PLAN(name) TEST_WITH(setup, teardown, fixture *f, name)

/* ---- buffer assignment ----------------------------------------------------------------------- */

TEST_PLAN(chains_reuse_memory)
{
    plan_ok(f, "graph @g(@x : f32[N,100]) {\nforward:\n"
               "  %a = transpose @x {perm=[1,0]} : f32[100,N]\n"
               "  %b = transpose %a {perm=[1,0]} : f32[N,100]\n"
               "  %c = transpose %b {perm=[1,0]} : f32[100,N]\n"
               "  %d = transpose %c {perm=[1,0]} : f32[N,100]\n"
               "  output \"d\" = %d\n}\n");
    check_overlaps(f->plan);
    assert_int_equal(f->plan->n_steps, 4);
    assert_int_equal(f->plan->arena_bytes, 2 * 1600);
    assert_int_equal(buffer(f, "x").home, RT_INPUT);
}

TEST_PLAN(pointwise_runs_in_place)
{
    plan_ok(f, "graph @g(@x : f32[N], @s : f32[]) {\nforward:\n"
               "  %a = exp @x : f32[N]\n"
               "  %b = neg %a : f32[N]\n"     /* in place of %a */
               "  %c = add %b, @s : f32[N]\n" /* in place of %b */
               "  %d = mul %c, %c : f32[N]\n" /* in place of %c, read twice */
               "  %e = neg %d : f32[N]\n"     /* not in place of %d, an output */
               "  output \"d\" = %d\n  output \"e\" = %e\n}\n");
    check_overlaps(f->plan);
    assert_int_equal(buffer(f, "a").home, RT_ARENA); /* never overwrites an input */
    assert_true(same_buffer(f, "a", "b") && same_buffer(f, "b", "c") && same_buffer(f, "c", "d"));
    assert_false(same_buffer(f, "d", "e"));
}

TEST_PLAN(broadcast_operand_is_not_overwritten)
{
    plan_ok(f, "graph @g(@x : f32[N,1]) {\nforward:\n"
               "  %a = exp @x : f32[N,1]\n"
               "  %r = reshape %a {shape=[1,N]} : f32[1,N]\n"
               "  %y = add %a, %r : f32[N,N]\n"
               "  %z = exp @x : f32[N,1]\n"
               "  %t = reshape %z {shape=[N]} : f32[N]\n"
               "  %q = reshape %z {shape=[N,1]} : f32[N,1]\n"
               "  %u = mul %z, %q : f32[N,1]\n"
               "  output \"y\" = %y\n  output \"t\" = %t\n  output \"u\" = %u\n}\n");
    check_overlaps(f->plan);
    assert_true(same_buffer(f, "a", "r"));
    assert_false(same_buffer(f, "a", "y"));
    assert_false(same_buffer(f, "z", "u")); /* alive as an output through a view */
}

TEST_PLAN(optimizer_writes_storage)
{
    plan_ok(f, "param @w : f32[100] = zero\nstate @v : f32[100] = zero\nstate @lr : f32[] = 0.5\n"
               "graph @g(@g : f32[100]) {\nforward:\n"
               "  %p = neg @w : f32[100]\n"
               "update:\n"
               "  %w1, %v1 = momentum @w, @v, @g, @lr : f32[100], f32[100]\n"
               "  store @w, %w1\n  store @v, %v1\n  output \"p\" = %p\n}\n");
    assert_true(same_buffer(f, "w", "w1") && same_buffer(f, "v", "v1"));
    assert_int_equal(buffer(f, "w1").home, RT_STORAGE);
    assert_int_equal(f->plan->n_after, 0);
}

TEST_PLAN(later_reader_forbids_writing_storage)
{
    plan_ok(f, "param @w : f32[100] = zero\nstate @lr : f32[] = 0.5\nstate @m : f32[100] = zero\n"
               "graph @g(@g : f32[100]) {\nupdate:\n"
               "  %w1 = sgd @w, @g, @lr : f32[100]\n"
               "  %m1 = add @m, @w : f32[100]\n"
               "  store @w, %w1\n  store @m, %m1\n}\n");
    assert_false(same_buffer(f, "w", "w1"));
    assert_true(same_buffer(f, "m", "m1"));
    assert_int_equal(f->plan->n_after, 1);
}

TEST_PLAN(output_of_new_value_is_copied)
{
    plan_ok(f, "param @w : f32[100] = zero\nstate @lr : f32[] = 0.5\n"
               "graph @g(@g : f32[100]) {\nupdate:\n"
               "  %w1 = sgd @w, @g, @lr : f32[100]\n"
               "  store @w, %w1\n  output \"w1\" = %w1\n}\n");
    assert_int_equal(buffer(f, "w1").home, RT_ARENA);
    assert_int_equal(f->plan->n_after, 1);
}

/* Only a kernel detects an index out of range, so no earlier step may have written storage. */
TEST_PLAN(fallible_step_forbids_writing_storage)
{
    plan_ok(f, "param @w : f32[100] = zero\nstate @lr : f32[] = 0.5\nparam @u : f32[100] = zero\n"
               "graph @g(@g : f32[100], @i : i64[100]) {\nupdate:\n"
               "  %w1 = sgd @w, @g, @lr : f32[100]\n"
               "  %h  = gather @g, @i : f32[100]\n"
               "  %u1 = sgd @u, %h, @lr : f32[100]\n"
               "  store @w, %w1\n  store @u, %u1\n}\n");
    assert_int_equal(f->plan->safe_from, 2);
    assert_int_equal(buffer(f, "w1").home, RT_ARENA);
    assert_int_equal(buffer(f, "u1").home, RT_STORAGE);
}

TEST_PLAN(forward_values_are_committed_by_copy)
{
    plan_ok(f, "state @m : f32[8] = zero\n"
               "graph @g(@x : f32[8]) {\nforward:\n  %n = add @m, @x : f32[8]\n  store @m, %n\n}\n");
    assert_int_equal(buffer(f, "n").home, RT_ARENA);
    assert_int_equal(f->plan->n_after, 1);
}

TEST_PLAN(old_values_are_saved_for_outputs_and_swaps)
{
    plan_ok(f, "state @a : f32[8] = zero\nstate @b : f32[8] = zero\nstate @c : f32[8] = zero\n"
               "graph @g(@x : f32[8]) {\nforward:\n  store @a, @b\n  store @b, @a\n  store @c, @c\n"
               "  output \"a\" = @a\n  output \"x\" = @x\n}\n");
    check_overlaps(f->plan);
    assert_int_equal(f->plan->n_before, 4); /* @a and @b for each other, @a and @x as outputs */
    assert_int_equal(f->plan->n_after, 2);
}

/* Steps used only by unselected outputs are removed, and the live ranges of their operands end earlier. */
TEST_PLAN(unselected_outputs_use_no_memory)
{
    rt_selection *one = calloc(1, sizeof *one + sizeof *one->names);
    plan_ok(f, "graph @g(@x : f16[N]) {\nforward:\n"
               "  %a = exp @x : f16[N]\n  %w = cast %a {to=f32} : f32[N]\n  output \"wide\" = %w\n"
               "  %b = neg %a : f16[N]\n  output \"b\" = %b\n  output \"a\" = %a\n}\n");
    assert_int_equal(f->plan->n_steps, 3);
    assert_int_equal(f->plan->n_outputs, 3);
    assert_false(same_buffer(f, "a", "b"));
    rt_plan_free(f->plan);
    f->plan = NULL;
    const ir_graph *g = f->module->graphs.items[0];
    *one = (rt_selection){.graph = g, .n = 1};
    one->names[0] = ir_graph_find_output(g, "b")->attr[IR_ATTR(output, name)].s;
    assert_int_equal(plan_outputs(f, one, (int64_t[]){4, 3}), AMPC_OK);
    assert_int_equal(f->plan->n_steps, 2);
    assert_int_equal(f->plan->n_outputs, 1);
    assert_true(same_buffer(f, "a", "b"));
    free(one);
}

TEST_PLAN(unused_results_and_nodes_use_no_memory)
{
    plan_ok(f, "graph @g(@x : f32[N,2,8,8]) {\nforward:\n"
               "  %y, %i = max_pool @x {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} :"
               " f32[N,2,4,4], i64[N,2,4,4]\n"
               "  %z = neg @x : f32[N,2,8,8]\n"
               "  %zz = neg %z : f32[N,2,8,8]\n"
               "  output \"y\" = %y\n}\n");
    assert_int_equal(f->plan->n_steps, 1);
    assert_int_equal(value(f, "i")->buffer, RT_NO_BUFFER);
    assert_int_equal(f->plan->steps[0]->out_buffer[1], RT_NO_BUFFER);
}

TEST_PLAN(symbolic_attributes_become_numbers)
{
    plan_ok(f, "graph @g(@x : f32[N,T]) {\nforward:\n"
               "  %e = expand @x {shape=[2,N,T]} : f32[2,N,T]\n"
               "  %y = div_count %e {count=[N*T]} : f32[2,N,T]\n"
               "  output \"y\" = %y\n}\n");
    const rt_step *s = f->plan->steps[1];
    assert_int_equal(s->attr[IR_ATTR(div_count, count)].list.items[0], 12);
    assert_int_equal(s->in[0].rank, 3);
    assert_int_equal(k_count(&s->in[0]), 24);
}

TEST_PLAN(many_buffers_do_not_overlap)
{
    char text[8192] = "graph @g(@x : f32[N,T]) {\nforward:\n", line[200];
    for (int i = 0; i < 40; i++) { /* various sizes and live ranges */
        snprintf(line, sizeof line, "  %%e%d = expand @x {shape=[%d,N,T]} : f32[%d,N,T]\n", i, i * 7 % 11 * 20 + 1,
                 i * 7 % 11 * 20 + 1);
        strcat(text, line);
        if (i < 3) continue;
        int from = i - 1 - i % 3;
        snprintf(line, sizeof line, "  %%r%d = reduce_sum %%e%d {axes=[0], keepdims=false} : f32[N,T]\n", i, from);
        strcat(text, line);
        snprintf(line, sizeof line, "  output \"r%d\" = %%r%d\n", i, i);
        strcat(text, line);
    }
    strcat(text, "}\n");
    plan_ok(f, text);
    check_overlaps(f->plan);
    int64_t sum = 0;
    for (int i = 0; i < f->plan->n_buffers; i++) sum += f->plan->buffers[i].bytes;
    assert_true(f->plan->arena_bytes < sum / 2);
}

/* ---- rejected plans -------------------------------------------------------------------------- */

static void expect_refusal(fixture *f, const char *text, const int64_t *sizes, const char *words)
{
    assert_int_equal(plan_text(f, text, sizes), AMPC_REJECTED);
    if (!strstr(diag_first_error(f->d), words)) fail_msg("'%s' lacks '%s'", diag_first_error(f->d), words);
}

TEST_PLAN(unbound_symbol_is_named)
{
    int64_t sizes[] = {-1};
    expect_refusal(f, "graph @g(@x : f32[N]) {\nforward:\n  %y = neg @x : f32[N]\n  output \"y\" = %y\n}\n", sizes,
                   "symbol 'N'");
}

TEST_PLAN(negative_dimension_is_named)
{
    int64_t sizes[] = {2};
    expect_refusal(f,
                   "graph @g(@x : f32[N]) {\nforward:\n"
                   "  %y = slice @x {start=[3], size=[N-3], step=[1]} : f32[N-3]\n  output \"y\" = %y\n}\n",
                   sizes, "size is out of range: -1 (N=2)");
}

TEST_PLAN(too_large_is_named)
{
    int64_t sizes[] = {INT64_C(1) << 30};
    expect_refusal(f,
                   "graph @g(@x : f32[N]) {\nforward:\n  %y = expand @x {shape=[N,N]} : f32[N,N]\n"
                   "  output \"y\" = %y\n}\n",
                   sizes, "f32[1073741824,1073741824] is too large (N=1073741824)");
}

TEST_PLAN(printed_plan)
{
    plan_ok(f, "param @w : f32[4] = zero\nstate @lr : f32[] = 0.5\n"
               "graph @g(@x : f32[4]) {\nforward:\n  %a = exp @x : f32[4]\n  %b = neg %a : f32[4]\n"
               "update:\n  %w1 = sgd @w, %b, @lr : f32[4]\n  store @w, %w1\n  output \"b\" = %b\n}\n");
    char *text = rt_plan_print(f->plan);
    assert_string_equal(text, "plan @g: 3 steps, arena 64 bytes\n"
                              "   0  exp                  @x  bytes 32\n"
                              "        %a : f32[4] at 0+16\n"
                              "   1  neg                  %a  bytes 32\n"
                              "        %b : f32[4] at 0+16 over %a\n"
                              "   2  sgd                  @w, %b, @lr, _  bytes 52\n"
                              "        %w1 : f32[4] at @w over @w\n"
                              "output \"b\" at 0+16\n");
    free(text);
}
