/* rows.c - loads and stores rows along any axis as contiguous carriers. */
#include "kernels/cpu/cpu.h"

cpu_rows cpu_rows_of(const k_view *v, int64_t axis)
{
    cpu_rows s = {1, 1, 1, 0, 0};
    int at = (int)(axis < 0 ? axis + v->rank : axis);
    for (int i = 0; i < v->rank; i++) *(i < at ? &s.outer : i == at ? &s.length : &s.inner) *= v->dims[i];
    s.per_outer = cpu_ceil_div(s.inner, CPU_ROW_BLOCK);
    s.blocks = s.outer * s.per_outer;
    return s;
}

int64_t cpu_rows_scratch(const cpu_rows *s) { return s->length * k_min(s->inner, CPU_ROW_BLOCK); }

int64_t cpu_rows_block(const cpu_rows *s, int64_t b, int64_t *first)
{
    int64_t at = b % s->per_outer * CPU_ROW_BLOCK;
    *first = b / s->per_outer * s->inner + at;
    return k_min(CPU_ROW_BLOCK, s->inner - at);
}

int64_t cpu_rows_element(const cpu_rows *s, int64_t row, int64_t a)
{
    return (row / s->inner * s->length + a) * s->inner + row % s->inner;
}

const void *cpu_rows_load(const k_view *v, const cpu_rows *s, int64_t first, int64_t count, ir_dtype carrier,
                          void *scratch)
{
    if (s->inner == 1) return cpu_tile_load(v, first * s->length, s->length, carrier, scratch);
    int64_t start = cpu_rows_element(s, first, 0), length = s->length;
    for (int64_t a = 0; a < length; a++) {
        cpu_tile part;
        const void *p = cpu_tile_load(v, start + a * s->inner, count, carrier, &part);
        for (int64_t j = 0; j < count; j++) {
            if (carrier == IR_f32) ((float *)scratch)[j * length + a] = ((const float *)p)[j];
            else ((uint64_t *)scratch)[j * length + a] = ((const uint64_t *)p)[j];
        }
    }
    return scratch;
}

void *cpu_rows_target(const k_view *v, const cpu_rows *s, int64_t first, ir_dtype carrier, void *scratch)
{
    return s->inner == 1 ? cpu_tile_target(v, first * s->length, carrier, scratch) : scratch;
}

void cpu_rows_store(const k_view *v, const cpu_rows *s, int64_t first, int64_t count, ir_dtype carrier,
                    const void *values)
{
    if (s->inner == 1) {
        cpu_tile_store(v, first * s->length, s->length, carrier, values);
        return;
    }
    int64_t start = cpu_rows_element(s, first, 0), length = s->length;
    for (int64_t a = 0; a < length; a++) {
        cpu_tile part;
        for (int64_t j = 0; j < count; j++) {
            if (carrier == IR_f32) part.f32[j] = ((const float *)values)[j * length + a];
            else part.i64[j] = ((const int64_t *)values)[j * length + a];
        }
        cpu_tile_store(v, start + a * s->inner, count, carrier, &part);
    }
}
