/* events.c - encodes Event messages and writes them as records. */
#include "runtime/train/events.h"

#include "ir/base/text_buffer.h"
#include "ir/base/wire.h"
#include "runtime/backend/memory.h"
#include "runtime/files/growing_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct rt_events {
    char *path;
    rt_growing_file file;
};

/* ---- messages: the wire format of protocol buffers -------------------------------------------- */

static void put_varint(text_buffer *m, uint64_t v)
{
    uint8_t bytes[WIRE_VARINT_MAX];
    text_add_bytes(m, bytes, wire_write_varint(bytes, v));
}

static void put_key(text_buffer *m, unsigned field, unsigned type) { put_varint(m, (uint64_t)field << 3 | type); }

static void put_bytes(text_buffer *m, unsigned field, const void *src, size_t n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, n);
    text_add_bytes(m, src, n);
}

/* Appends `part` as a field and frees it. */
static void put_message(text_buffer *m, unsigned field, text_buffer *part)
{
    m->failed |= part->failed;
    put_bytes(m, field, part->data, part->length);
    free(part->data);
}

/* Fields of Event, Summary.Value and SessionLog. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static text_buffer new_event(uint64_t step)
{
    text_buffer m = {0};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    put_key(&m, EVENT_WALL_TIME, WIRE_FIXED64);
    text_add_bytes(&m, &seconds, sizeof seconds);
    put_key(&m, EVENT_STEP, WIRE_VARINT);
    put_varint(&m, step);
    return m;
}

static void put_scalar(text_buffer *summary, const rt_scalar *s)
{
    text_buffer value = {0};
    const float number = (float)s->value;
    put_bytes(&value, VALUE_TAG, s->tag, strlen(s->tag));
    put_key(&value, VALUE_SIMPLE, WIRE_FIXED32);
    text_add_bytes(&value, &number, sizeof number);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* ---- records ---------------------------------------------------------------------------------- */

/* CRC32C (Castagnoli), bit by bit: a record has about 200 bytes. */
static uint32_t crc32c(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78 & (0 - (crc & 1)));
    }
    return ~crc;
}

static void put_checksum(text_buffer *record, const unsigned char *bytes, size_t n)
{
    const uint32_t crc = crc32c(bytes, n), masked = (crc >> 15 | crc << 17) + 0xa282ead8;
    text_add_bytes(record, &masked, sizeof masked);
}

/* Writes the event and frees it. */
static ampc_status write_record(rt_events *e, text_buffer *event)
{
    text_buffer record = {.failed = event->failed};
    const uint64_t length = event->length;
    text_add_bytes(&record, &length, sizeof length);
    put_checksum(&record, (const unsigned char *)&length, sizeof length);
    text_add_bytes(&record, event->data, event->length);
    put_checksum(&record, (const unsigned char *)event->data, event->length);
    free(event->data);
    ampc_status s = record.failed ? rt_no_memory(e->file.d) : rt_growing_write(&e->file, record.data, record.length);
    free(record.data);
    return s;
}

/* ---- files ------------------------------------------------------------------------------------ */

/* Creates the first file of this process and second that does not exist yet. */
static ampc_status create(rt_events *e, const char *folder)
{
    enum { HOST = 256, NAME = HOST + 64 };
    char host[HOST] = "";
    const size_t capacity = strlen(folder) + NAME;
    const long long seconds = (long long)time(NULL);
    e->path = malloc(capacity);
    if (!e->path) return rt_no_memory(e->file.d);
    e->file.path = e->path;
    (void)gethostname(host, sizeof host - 1);
    bool created = false;
    for (int i = 0; !created && (i == 0 || errno == EEXIST); i++) {
        snprintf(e->path, capacity, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, seconds, host, (long)getpid(),
                 i);
        created = rt_growing_create(&e->file);
    }
    return created ? AMPC_OK : rt_growing_fail(&e->file, "cannot create");
}

static ampc_status write_head(rt_events *e, uint64_t step)
{
    static const char version[] = "brain.Event:2";
    text_buffer first = new_event(0), start = new_event(step + 1), session = {0};
    put_bytes(&first, EVENT_FILE_VERSION, version, sizeof version - 1);
    put_key(&session, SESSION_STATUS, WIRE_VARINT);
    put_varint(&session, SESSION_START);
    put_message(&start, EVENT_SESSION_LOG, &session);
    ampc_status s = write_record(e, &first), t = write_record(e, &start);
    return s == AMPC_OK ? t : s;
}

ampc_status rt_events_open(const char *folder, uint64_t step, diag *d, rt_events **out)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return diag_errno(d, DIAG_FILE(folder), "cannot create the directory");
    rt_events *e = malloc(sizeof *e);
    if (!e) return rt_no_memory(d);
    *e = (rt_events){.file = {.d = d, .fd = -1}};
    ampc_status s = create(e, folder);
    if (s == AMPC_OK) s = write_head(e, step);
    if (s == AMPC_OK) *out = e;
    else rt_events_close(e);
    return s;
}

ampc_status rt_events_write(rt_events *e, uint64_t step, const rt_scalar *scalars, size_t n)
{
    text_buffer event = new_event(step), summary = {0};
    for (size_t i = 0; i < n; i++) put_scalar(&summary, &scalars[i]);
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(e, &event);
}

ampc_status rt_events_sync(rt_events *e) { return rt_growing_sync(&e->file); }

ampc_status rt_events_close(rt_events *e)
{
    if (!e) return AMPC_OK;
    ampc_status s = rt_growing_close(&e->file);
    free(e->path);
    free(e);
    return s;
}
