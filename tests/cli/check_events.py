#!/usr/bin/env python3
"""Reads what a training wrote for other programs, by their formats and without ampc's code.

usage: check_events.py scalars DIR    prints TAG STEP:VALUE.. of each tag, as TensorBoard would show them
       check_events.py same DIR LOG   compares the events with the step log of the same run
       check_events.py package DIR    compares them with what Python's package tensorboard reads (by hand)
       check_events.py trace FILE     checks a Chrome trace; prints the number of spans of each name

Event files: TensorFlow's record_writer.cc, event.proto, summary.proto. Traces: Google's "Trace Event Format".
"""
import glob
import json
import struct
import sys

CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The payloads; an unfinished last record is left out."""
    at = 0
    while len(data) - at >= 12:
        length, crc = struct.unpack_from('<QI', data, at)
        assert crc == masked_crc(data[at:at + 8]), f'checksum of the length at {at}'
        payload = data[at + 12:at + 12 + length]
        if len(data) < at + 16 + length:
            return
        assert struct.unpack_from('<I', data, at + 12 + length)[0] == masked_crc(payload), f'checksum at {at}'
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from('<d', data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from('<f', data, at)[0], at + 4
        else:
            assert key & 7 == 2, f'wire type {key & 7}'
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        yield key >> 3, value


def read_charts(folder):
    charts = {}
    for path in sorted(glob.glob(folder + '/events.out.tfevents.*')):
        with open(path, 'rb') as f:
            events = [dict(fields(payload)) for payload in records(f.read())]
        assert events[0][3] == b'brain.Event:2', events[0]
        for event in events[1:]:
            step = event.get(2, 0)
            if 7 in event:  # the start of a session: later steps are void
                assert dict(fields(event[7])) == {1: 1}, event
                for chart in charts.values():
                    chart[:] = [(s, v) for s, v in chart if s < step]
            for number, value in fields(event.get(5, b'')):
                value = dict(fields(value))
                assert number == 1, number
                charts.setdefault(value[1].decode(), []).append((step, value[2]))
    return charts


def scalars(folder):
    for tag, chart in sorted(read_charts(folder).items()):
        print(tag, *(f'{step}:{value:.6g}' for step, value in chart))


def same(folder, log):
    charts = read_charts(folder)
    with open(log) as f:
        steps = [s for s in map(json.loads, f) if 'step' in s]
    for key in 'loss', 'grad_norm', 'lr', 'scale', 'skipped', 'epoch':
        expected = [(s['step'], struct.unpack('f', struct.pack('f', s[key]))[0]) for s in steps]
        assert charts['train/' + key] == expected and len(expected) > 1, (key, charts['train/' + key], expected)


def package(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    reader = EventAccumulator(folder, size_guidance={'scalars': 0})
    reader.Reload()
    theirs = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()['scalars']}
    ours = read_charts(folder)
    assert theirs == ours and ours, (sorted(theirs), sorted(ours))
    print(len(ours), 'charts,', sum(map(len, ours.values())), 'values')


def trace(path):
    with open(path) as f:
        events = json.load(f)
    lanes, counts, end = {}, {}, {}
    for event in events:
        assert event['ph'] in 'MX' and event['name'] and event['pid'] == 0, event
        if event['ph'] == 'M':
            assert event['name'] in ('process_name', 'thread_name'), event
            lanes[event['tid']] = event['args']['name']
            continue
        assert event['tid'] in lanes and event['cat'] == lanes[event['tid']], event
        assert event['ts'] >= end.get(event['tid'], 0) - 1 and event['dur'] >= 0, event
        end[event['tid']] = event['ts'] + event['dur']
        counts[event['name']] = counts.get(event['name'], 0) + 1
    print(*(f'{name}:{count}' for name, count in sorted(counts.items())))


if __name__ == '__main__':
    {'scalars': scalars, 'same': same, 'package': package, 'trace': trace}[sys.argv[1]](*sys.argv[2:])
