import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from dml.core.errors import UserError
from dml.data import decode
from dml.data.decode import check_pixels, decode_image, load_image
from tests.data.trees import photo, save, truncate
from tests.forked import context


@pytest.mark.parametrize(
    "name",
    ["RGB.jpg", "L.jpg", "CMYK.JPG", "RGB.png", "L.png", "RGBA.png", "LA.png", "P.png", "1.png"],
)
def test_every_color_mode_is_read_as_pillow_converts_it(tmp_path: Path, name: str):
    path = save(tmp_path / name, seed=3, mode=name[:-4])
    image = load_image(path)
    with Image.open(path) as opened:
        expected = np.array(opened.convert("RGB"))
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 30, 40))
    difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected.astype(int))
    assert difference.max() <= (name[-4:] != ".png")


def test_missing_truncated_and_foreign_files_are_named(tmp_path: Path):
    foreign = tmp_path / "notes.jpg"
    foreign.write_text("not an image")
    empty = tmp_path / "empty.jpg"
    empty.touch()
    cut = truncate(save(tmp_path / "cut.jpg", 1, size=(400, 300)))
    for path in (tmp_path / "absent.jpg", foreign, empty, cut):
        with pytest.raises(UserError, match=path.name):
            load_image(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_only_on_request(tmp_path: Path, suffix: str, orientation: int):
    path = tmp_path / f"a{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo(3).save(path, exif=exif)
    with Image.open(path) as opened:
        stored, upright = np.array(opened), np.array(ImageOps.exif_transpose(opened))
    for apply, expected in ((False, stored), (True, upright)):
        pixels = load_image(path, apply).permute(1, 2, 0).numpy().astype(int)
        assert pixels.shape == expected.shape
        assert np.abs(pixels - expected).max() <= 1


def test_a_box_does_not_keep_the_rest_of_its_image(tmp_path: Path):
    path = save(tmp_path / "a.png", 1, size=(800, 600))
    part = load_image(Path(f"{path}#10,20,40,60"))
    assert part.untyped_storage().nbytes() == part.numel() == 3 * 30 * 40
    assert torch.equal(part, load_image(path)[:, 20:60, 10:40])


@pytest.mark.parametrize("apply_orientation", [False, True])
@pytest.mark.parametrize("background", ["white", "black", "#102030"])
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_options_act_on_every_form_of_an_image(tmp_path, mode, background, apply_orientation):
    path = tmp_path / "a.png"
    pixels = np.random.default_rng(4).integers(0, 256, (6, 8, len(mode)), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(pixels).save(path, exif=exif)
    options = {"apply_orientation": apply_orientation, "background": background}

    whole = decode_image(path, **options)
    canvas = Image.new("RGBA", (8, 6), background)
    canvas.alpha_composite(Image.fromarray(pixels).convert("RGBA"))
    expected = np.array(canvas.convert("RGB"))
    if apply_orientation:
        expected = np.rot90(expected, -1)
    assert np.array_equal(whole.pixels.permute(1, 2, 0).numpy(), expected)

    with Image.open(path) as opened:
        assert torch.equal(decode_image(opened, **options).pixels, whole.pixels)
    box = decode_image(Path(f"{path}#1,2,5,6"), **options)
    assert torch.equal(box.pixels, whole.pixels[:, 2:6, 1:5])
    in_memory = decode_image(pixels, background=background)
    assert torch.equal(in_memory.pixels, load_image(path, background=background))


@pytest.mark.parametrize("box", ["", "#0,0,10,10"])
def test_the_limit_of_pixels_is_that_of_the_whole_file(tmp_path: Path, box: str):
    path = save(tmp_path / "a.png", 1, size=(40, 30))
    load_image(Path(f"{path}{box}"), max_pixels=1200)
    with pytest.raises(UserError, match=r"data\.max_pixels"):
        load_image(Path(f"{path}{box}"), max_pixels=1199)


def chunk(kind: bytes, content: bytes) -> bytes:
    length, checksum = len(content), zlib.crc32(kind + content)
    return struct.pack(">I", length) + kind + content + struct.pack(">I", checksum)


def png(color: int, bits: int, row: bytes, transparent: bytes = b"") -> bytes:
    """A PNG of two pixels, with the color that is transparent (tRNS)."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, bits, color, 0, 0, 0))
    end = chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    middle = chunk(b"tRNS", transparent) if transparent else b""
    return b"\x89PNG\r\n\x1a\n" + header + middle + end


# The left pixel is transparent with a dark hidden color, the right one is opaque and dark.
HALF_PNGS = {
    "grey, 1 bit": png(0, 1, bytes([0b01000000]), struct.pack(">H", 0)),
    "grey, 2 bits": png(0, 2, bytes([0b01000000]), struct.pack(">H", 1)),
    "grey, 4 bits": png(0, 4, bytes([0x30]), struct.pack(">H", 3)),
    "grey, 8 bits": png(0, 8, bytes([7, 0]), struct.pack(">H", 7)),
    "grey, 16 bits": png(0, 16, struct.pack(">2H", 300, 0), struct.pack(">H", 300)),
    "color, 8 bits": png(2, 8, bytes([7, 8, 9, 0, 0, 0]), struct.pack(">3H", 7, 8, 9)),
    "color, 16 bits": png(
        2, 16, struct.pack(">6H", 900, 1900, 2900, 0, 0, 0), struct.pack(">3H", 900, 1900, 2900)
    ),
    "alpha, 16 bits": png(6, 16, struct.pack(">8H", 0, 0, 0, 0, 0, 0, 0, 65535)),
    "grey and alpha, 16 bits": png(4, 16, struct.pack(">4H", 0, 0, 0, 65535)),
}


@pytest.mark.parametrize("kind", HALF_PNGS)
def test_every_transparency_of_a_png_is_composed(tmp_path: Path, kind: str):
    path = tmp_path / "a.png"
    path.write_bytes(HALF_PNGS[kind])
    right = 255 if kind == "grey, 1 bit" else 0
    decoded = decode_image(path)
    assert decoded.transparent
    assert decoded.pixels[:, 0].T.tolist() == [[255] * 3, [right] * 3]
    assert load_image(path, background="#010203")[:, 0, 0].tolist() == [1, 2, 3]


def half_transparent(mode: str) -> Image.Image:
    """Black, of 8×8 pixels, of which the left half is transparent."""
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 4, 8))
    if mode == "P, index":
        palette = Image.new("P", (8, 8), 1)
        palette.putpalette([0, 0, 0, 0, 0, 0])
        palette.paste(0, (0, 0, 4, 8))
        palette.info["transparency"] = 0
        return palette
    if mode == "P, bytes":
        palette = half_transparent("P, index")
        palette.info["transparency"] = bytes([0, 255])
        return palette
    if mode == "La":
        return image.convert("LA").convert("La")
    return image.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "RGBa", "La", "PA", "P, index", "P, bytes"])
def test_every_mode_with_alpha_is_composed(mode: str):
    image = half_transparent(mode)
    for background, level in (("white", 255), ("black", 0)):
        decoded = decode_image(image, background=background)
        assert decoded.transparent
        assert decoded.pixels[:, :, :4].unique().tolist() == [level]
        assert decoded.pixels[:, :, 4:].unique().tolist() == [0]


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff", "gif"])
@pytest.mark.parametrize("mode", ["RGBA", "P, index", "LA"])
def test_every_format_with_alpha_is_composed_also_turned_and_in_a_box(tmp_path, suffix, mode):
    path = tmp_path / f"a.{suffix}"
    image = half_transparent("RGBA" if suffix in ("webp", "gif") else mode)
    if suffix == "tiff" and mode == "P, index":
        image = half_transparent("PA").convert("RGBA")
    image.save(path, **({"lossless": True} if suffix == "webp" else {}))
    for file in (path, Path(f"{path}#0,0,8,8")):
        decoded = decode_image(file, apply_orientation=True)
        assert decoded.transparent
        assert decoded.pixels[:, :, :4].unique().tolist() == [255]
        assert decoded.pixels[:, :, 4:].unique().tolist() == [0]


def test_half_transparent_pixels_are_mixed():
    image = Image.new("RGBA", (2, 2), (200, 100, 0, 51))  # a fifth
    assert load_image(image)[:, 0, 0].tolist() == [244, 224, 204]
    assert load_image(image, background="black")[:, 0, 0].tolist() == [40, 20, 0]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "RGB"])
def test_opaque_images_keep_the_pixels_of_pillow(mode: str):
    image = photo(4).convert("P" if mode == "PA" else "RGB").convert(mode)
    decoded = decode_image(image, background="black")
    assert not decoded.transparent
    assert np.array_equal(decoded.pixels.permute(1, 2, 0).numpy(), np.array(image.convert("RGB")))


@pytest.mark.parametrize("missing", ["decode_jpeg", "ImageReadMode", "module"])
def test_pillow_reads_jpegs_where_torchvision_does_not(tmp_path: Path, monkeypatch, missing: str):
    path = save(tmp_path / "a.jpg", 3)
    if missing == "module":
        monkeypatch.setitem(sys.modules, "torchvision.io", None)
    else:
        monkeypatch.delattr(f"torchvision.io.{missing}")
    assert decode._find_jpeg_decoder() is None
    monkeypatch.setattr(decode, "_decode_jpeg", decode._find_jpeg_decoder())
    with Image.open(path) as opened:
        expected = np.array(opened.convert("RGB"))
    assert np.array_equal(load_image(path).permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
def test_pillow_reads_jpegs_where_the_operator_does_not_load(tmp_path, monkeypatch, error):
    def fail(*args: object) -> None:
        raise error("no operator")

    monkeypatch.setattr(decode, "_decode_jpeg", fail)
    assert tuple(load_image(save(tmp_path / "a.jpg", 3)).shape) == (3, 30, 40)


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize(("alpha", "transparent"), [((0, 0), False), ((0, 255), True)])
def test_a_fourth_byte_that_is_unused_is_no_transparency(tmp_path, alpha, transparent, upright):
    pixels = b"".join(bytes([30, 20, 10, level]) for level in alpha)  # blue, green, red, alpha
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", 108, 2, 1, 1, 32, 3, len(pixels), 0, 0, 0, 0)
    header += masks + b"BGRs" + bytes(48)
    start = 14 + len(header)
    file = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + header + pixels
    (tmp_path / "a.bmp").write_bytes(file)
    decoded = decode_image(tmp_path / "a.bmp", upright)
    assert decoded.transparent is transparent
    left = [255, 255, 255] if transparent else [10, 20, 30]
    assert decoded.pixels[:, 0].T.tolist() == [left, [10, 20, 30]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "bmp", "tiff"])
def test_large_images_are_refused_by_their_header(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (60, 40)).save(path)
    assert load_image(path).shape == (3, 40, 60)
    assert load_image(path, max_pixels=2_400).shape == (3, 40, 60)
    monkeypatch.setattr(decode, "_decode_jpeg", None)
    monkeypatch.setattr(decode, "_decode_with_pillow", None)  # a call would raise
    with pytest.raises(UserError, match=rf"{path}: 60x40 pixels; images have at most 2,399"):
        load_image(path, max_pixels=2_399)


def write_large_header(path: Path) -> None:
    """A header of 40,000 x 40,000 pixels, in a JPEG of a few bytes."""
    Image.new("RGB", (8, 8)).save(path)
    data = bytearray(path.read_bytes())
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = (40_000).to_bytes(2, "big") * 2
    path.write_bytes(data)


def test_one_limit_for_both_decoders(tmp_path):
    path = tmp_path / "a.jpg"
    write_large_header(path)
    with pytest.raises(UserError, match=rf"{path}: .* at most 178,956,970 pixels"):
        load_image(path)


def test_the_limit_may_be_above_that_of_pillow(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    write_large_header(path)
    check_pixels(path, 1_600_000_000)
    with pytest.raises(UserError, match=r"40000x40000 pixels; .* at most 1,599,999,999 pixels"):
        check_pixels(path, 1_599_999_999)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)  # of the user's program
    monkeypatch.setattr(decode, "MAX_IMAGE_PIXELS", 2_000)
    Image.new("RGB", (60, 40)).save(tmp_path / "b.png")
    assert load_image(tmp_path / "b.png", max_pixels=2_400).shape == (3, 40, 60)
    assert Image.MAX_IMAGE_PIXELS == 1_000


def test_a_fork_in_between_does_not_wait_for_a_thread(tmp_path):
    path = tmp_path / "b.png"
    Image.new("RGB", (60, 40)).save(path)
    with decode._limit_of_pillow:
        process = context().Process(target=load_image, args=(path, False, "white", 2**30))
        process.start()
        process.join(60)
    assert process.exitcode == 0


RAMP = np.linspace(0, 1, 64).reshape(8, 8)


def tiff(path: Path, numbers: np.ndarray, width: int = 8, **values: int) -> Path:
    """An uncompressed grey TIFF of 8 rows, with other values of its tags."""
    data = numbers.tobytes()
    tags = {"width": 256, "height": 257, "bits": 258, "compression": 259, "photometric": 262}
    tags |= {"start": 273, "samples": 277, "rows": 278, "bytes": 279, "largest": 281, "format": 339}
    values = {"photometric": 1, "format": 1, "bits": numbers.itemsize * 8, **values}
    values |= {"width": width, "height": 8, "compression": 1, "samples": 1, "rows": 8}
    values |= {"bytes": len(data), "start": 14 + 12 * (len(values) + 2)}
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, values[name])
        for name, tag in tags.items()
        if name in values
    )
    header = b"II*\0" + struct.pack("<IH", 8, len(entries) // 12)
    path.write_bytes(header + entries + bytes(4) + data)
    return path


def twelve_bits(numbers: np.ndarray) -> np.ndarray:
    """Two numbers in three bytes."""
    first, second = numbers.ravel()[::2], numbers.ravel()[1::2]
    parts = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(parts, axis=1).astype("u1")


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize(
    ("numbers", "values"),
    [
        ((RAMP * 65535).astype("<u2"), {}),
        (((1 - RAMP) * 65535).astype("<u2"), {"photometric": 0}),
        (((1 - RAMP) * 255).astype("u1"), {"photometric": 0}),
        ((RAMP * 4095).astype("<u2"), {"largest": 4095}),
        (((1 - RAMP) * 4095).astype("<u2"), {"largest": 4095, "photometric": 0}),
        ((RAMP * 1023).astype("<u2"), {"largest": 1023}),
        (twelve_bits((RAMP * 4095).astype("u2")), {"bits": 12}),
    ],
    ids=["16", "white is zero", "white is zero in 8", "12 in 16", "both", "10 in 16", "12"],
)
def test_numbers_of_a_tiff_keep_their_brightness(tmp_path, numbers, values, upright):
    pixels = load_image(tiff(tmp_path / "a.tif", numbers, **values), upright)
    assert np.abs(pixels[0].numpy() - RAMP * 255).max() < 1.5  # rounded twice


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize(
    ("numbers", "values", "reason"),
    [
        ((RAMP * 65535 - 32768).astype("<i2"), {"format": 2}, "signed numbers have no black level"),
        ((RAMP * 255 - 128).astype("i1"), {"format": 2}, "signed numbers have no black level"),
        ((RAMP * 4095).astype("<u2"), {}, "16-bit numbers end at 4095"),
        ((RAMP * 255).astype("<u2"), {}, "16-bit numbers end at 255"),
        (RAMP.astype("<f4"), {"format": 3}, "32-bit numbers have no white level"),
    ],
)
def test_a_tiff_without_a_white_level_is_refused(tmp_path, numbers, values, reason, upright):
    with pytest.raises(UserError, match=reason):
        load_image(tiff(tmp_path / "a.tif", numbers, **values), upright)


def test_other_formats_of_12_bits_in_16_are_refused_and_black_is_not(tmp_path):
    Image.fromarray((RAMP * 4095).astype("u2")).save(tmp_path / "grey.png")
    color = np.stack([RAMP * 4095] * 3, axis=-1).astype(">u2")
    write_color_png(tmp_path / "color.png", color)
    for name in ("grey", "color"):
        with pytest.raises(UserError, match="16-bit numbers end at 4095"):
            load_image(tmp_path / f"{name}.png")
    write_color_png(tmp_path / "bright.png", 16 * color)
    assert load_image(tmp_path / "bright.png").max() == 255 - 15
    Image.fromarray(np.zeros((8, 8), "u2")).save(tmp_path / "black.png")
    assert load_image(tmp_path / "black.png").max() == 0


def write_color_png(path: Path, numbers: np.ndarray) -> None:
    """Writes RGB of 16 bits, which Pillow does not."""
    rows = b"".join(b"\0" + row.tobytes() for row in numbers)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0))
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + end)


def test_numbers_of_a_pgm_are_scaled_by_its_largest(tmp_path):
    for largest in (300, 4095, 65535):
        numbers = (RAMP * largest).astype(">u2").tobytes()
        (tmp_path / "a.pgm").write_bytes(f"P5 8 8 {largest}\n".encode() + numbers)
        assert np.abs(load_image(tmp_path / "a.pgm")[0].numpy() - RAMP * 255).max() < 1.5


@pytest.mark.parametrize(
    ("white", "values"),
    [(65535, {}), (4095, {"largest": 4095}), (1023, {"largest": 1023}), (4095, {"bits": 12})],
)
def test_white_is_white_and_black_is_black(tmp_path, white, values):
    numbers = np.where(RAMP > 0.5, white, 0).astype("<u2")
    stored = twelve_bits(numbers) if "bits" in values else numbers
    image = load_image(tiff(tmp_path / "a.tif", stored, **values))[0]
    assert np.array_equal(image.numpy(), np.where(RAMP > 0.5, 255, 0))


def test_the_smallest_number_of_16_bits_that_is_no_12_bits(tmp_path):
    for largest in (4095, 4096):
        Image.fromarray((RAMP * largest).astype("u2")).save(tmp_path / f"{largest}.png")
    with pytest.raises(UserError, match="16-bit numbers end at 4095"):
        load_image(tmp_path / "4095.png")
    assert load_image(tmp_path / "4096.png").max() == 16


@pytest.mark.parametrize("opacity", [0, 1, 254, 255])
def test_a_single_pixel_that_is_not_opaque_is_transparency(opacity):
    image = Image.new("RGBA", (3, 2), (0, 0, 0, 255))
    image.putpixel((1, 1), (0, 0, 0, opacity))
    decoded = decode_image(image)
    assert decoded.transparent is (opacity < 255)
    assert decoded.pixels[:, 1, 1].tolist() == [255 - opacity] * 3
