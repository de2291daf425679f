#!/usr/bin/env python3
"""Writes small PNG and JPEG files of every form, and what PIL makes of them.

usage: make_images.py

Writes the files, and pil.npz, into the folder of this script. An array of pil.npz is named FILE CHANNELS BOX SIZE: the
file converted to RGB (3) or gray (1), and resized to WIDTHxHEIGHT from the whole image (whole) or its largest centred
box of that shape (centre); `as is` instead of box and size means unchanged. For CHANNELS -1 they are the class numbers
of a mask, and resizing uses the nearest pixels. Needs pillow below 13,
which may resample columns before rows.
"""
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps, __version__

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 23, 37
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type of PNG
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def picture(channels, levels, seed):
    """A smooth picture with noise, values 0 .. levels-1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [np.sin(x / (3 + c)) + np.cos(y / (2 + c)) for c in range(channels)]
    noise = np.random.default_rng(seed).uniform(-1, 1, (HEIGHT, WIDTH, channels))
    value = (np.stack(waves, -1) + noise + 3) / 6
    return np.clip(value * levels, 0, levels - 1).astype(np.uint16)


def packed_rows(samples, depth):
    """Rows of PNG with filter 0."""
    rows = samples.reshape(samples.shape[0], -1)
    if depth == 16:
        data = rows.astype(">u2").view(np.uint8).reshape(rows.shape[0], -1)
    elif depth == 8:
        data = rows.astype(np.uint8)
    else:
        bits = (rows[..., None] >> np.arange(depth - 1, -1, -1)) & 1
        data = np.packbits(bits.reshape(rows.shape[0], -1).astype(np.uint8), axis=1)
    return b"".join(b"\0" + row.tobytes() for row in data)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(samples, kind, depth, interlaced=False, extra=b""):
    """A PNG file, also of the forms that PIL does not write."""
    height, width = samples.shape[:2]
    if interlaced:
        parts = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7]
        rows = b"".join(packed_rows(p, depth) for p in parts if p.size)
    else:
        rows = packed_rows(samples, depth)
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows, 9)) +
            chunk(b"IEND", b""))


def write_pngs():
    for kind, depth in [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (4, 8), (4, 16), (6, 8), (6, 16)]:
        name = {0: "gray", 2: "rgb", 4: "graya", 6: "rgba"}[kind]
        samples = picture(CHANNELS[kind], 1 << depth, kind * 32 + depth)
        (HERE / f"{name}{depth}.png").write_bytes(png(samples, kind, depth))
    colours = np.random.default_rng(1).integers(0, 256, (16, 3), np.uint8).tobytes()
    palette = chunk(b"PLTE", colours)
    indices = picture(1, 16, 7)
    (HERE / "palette4.png").write_bytes(png(indices, 3, 4, extra=palette))
    (HERE / "palette8.png").write_bytes(png(indices, 3, 8, extra=palette + chunk(b"tRNS", bytes(range(16)))))
    (HERE / "interlaced.png").write_bytes(png(picture(3, 256, 8), 2, 8, interlaced=True))
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    (HERE / "gamma.png").write_bytes(png(picture(3, 256, 9), 2, 8, extra=gamma))
    (HERE / "colour-key.png").write_bytes(png(picture(1, 256, 10), 0, 8, extra=chunk(b"tRNS", b"\0\x80")))


def write_jpegs():
    smooth = Image.fromarray(picture(3, 256, 11).astype(np.uint8))
    smooth.save(HERE / "420.jpg", quality=85)
    smooth.save(HERE / "444.jpg", quality=95, subsampling=0)
    smooth.save(HERE / "progressive.jpg", quality=80, progressive=True)
    smooth.convert("L").save(HERE / "gray.jpg", quality=90)
    smooth.convert("CMYK").save(HERE / "cmyk.jpg", quality=50)


def opened(path, channels):
    image = Image.open(path)
    if image.mode.startswith("I"):  # 16-bit gray, which PIL would clip
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def main():
    if int(__version__.split(".")[0]) > 12:
        raise SystemExit(f"Pillow {__version__} chooses the order of passes; the values are those of Pillow up to 12")
    write_pngs()
    write_jpegs()
    values = {}
    for path in sorted(HERE.glob("*.png")) + sorted(HERE.glob("*.jpg")):
        if path.name == "cmyk.jpg":
            continue
        for channels in (1, 3):
            values[f"{path.name} {channels} as is"] = np.asarray(opened(path, channels))
    for name in ("rgb8.png", "gray8.png"):
        for width, height in [(37, 23), (8, 8), (5, 20), (64, 48), (1, 1), (37, 7), (100, 23)]:
            channels = 3 if name.startswith("rgb") else 1
            image = opened(HERE / name, channels)
            whole = image.resize((width, height), Image.Resampling.BILINEAR)
            values[f"{name} {channels} whole {width}x{height}"] = np.asarray(whole)
            centre = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
            values[f"{name} {channels} centre {width}x{height}"] = np.asarray(centre)
    for name in ("gray1.png", "gray8.png", "palette4.png", "palette8.png"):
        values[f"{name} -1 as is"] = np.asarray(Image.open(HERE / name)).astype(np.uint8)
    for depth in (2, 4):  # PIL scales these
        levels = np.asarray(Image.open(HERE / f"gray{depth}.png")) // (255 // ((1 << depth) - 1))
        values[f"gray{depth}.png -1 as is"] = levels.astype(np.uint8)
    image = Image.open(HERE / "palette8.png")
    for width, height in [(8, 8), (5, 20), (64, 48), (1, 1), (100, 23)]:
        near = image.resize((width, height), Image.Resampling.NEAREST)
        values[f"palette8.png -1 whole {width}x{height}"] = np.asarray(near)
        centre = ImageOps.fit(image, (width, height), Image.Resampling.NEAREST)
        values[f"palette8.png -1 centre {width}x{height}"] = np.asarray(centre)
    np.savez_compressed(HERE / "pil.npz", **values)


main()
