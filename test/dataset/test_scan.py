"""What a folder is found to hold: the quick look at headers, odd files and names, and the index between two starts."""

import io
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sd_scripts.data import parallel, scan, scan_index
from sd_scripts.data.images import PictureProblem, probe
from sd_scripts.data.picture_headers import read_header
from sd_scripts.data.words import shown


def texts(plan, level: str) -> str:
    return "\n".join(str(problem) for problem in plan.problems if problem.level == level)


# The quick look


def saved(mode: str, form: str, size=(33, 21), orientation=None, **save) -> bytes:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 4), np.uint8), "RGBA").convert(mode)
    if orientation:
        exif = Image.Exif()
        exif[0x010E], exif[274] = "a description", orientation
        save["exif"] = exif
    buffer = io.BytesIO()
    image.save(buffer, form, **save)
    return buffer.getvalue()


FILES = {
    "png": saved("RGB", "PNG"),
    "png with alpha": saved("RGBA", "PNG"),
    "png grey": saved("L", "PNG"),
    "png grey alpha": saved("LA", "PNG"),
    "png palette": saved("P", "PNG"),
    "png palette transparent": saved("P", "PNG", transparency=0),
    "png sideways": saved("RGB", "PNG", orientation=6),
    "jpeg": saved("RGB", "JPEG"),
    "jpeg grey": saved("L", "JPEG"),
    "jpeg cmyk": saved("CMYK", "JPEG"),
    "jpeg progressive": saved("RGB", "JPEG", progressive=True),
    "jpeg with profile": saved("RGB", "JPEG", icc_profile=b"x" * 150_000),
    **{f"jpeg orientation {number}": saved("RGB", "JPEG", orientation=number) for number in range(1, 9)},
    "webp": saved("RGB", "WEBP"),
    "webp lossless": saved("RGB", "WEBP", lossless=True),
    "webp with alpha": saved("RGBA", "WEBP"),
    "webp lossless with alpha": saved("RGBA", "WEBP", lossless=True),
    "webp sideways": saved("RGB", "WEBP", orientation=8),
    "bmp": saved("RGB", "BMP"),
    "bmp palette": saved("P", "BMP"),
    "large png": saved("RGB", "PNG", size=(300, 200)),
    "large jpeg": saved("RGB", "JPEG", size=(300, 200), quality=100),
}
QUICK = {
    "png",
    "png with alpha",
    "jpeg",
    "jpeg orientation 6",
    "webp",
    "webp lossless",
    "bmp",
    "large png",
    "large jpeg",
}


@pytest.mark.parametrize("name", FILES)
def test_the_quick_look_sees_what_pillow_sees(tmp_path, name):
    path = tmp_path / "a"
    path.write_bytes(FILES[name])
    header, quick = probe(path), read_header(str(path), len(FILES[name]))
    if quick is not None:
        assert (quick[:2], quick[2]) == (header.size, header.has_alpha)
    assert quick is not None or name not in QUICK


@pytest.mark.parametrize("name", FILES)
def test_the_quick_look_takes_no_damaged_file(tmp_path, name):
    """Cut anywhere, or with bytes changed: it says nothing then, or what Pillow says of the whole file."""
    path, data = tmp_path / "a", FILES[name]
    path.write_bytes(data)
    whole = probe(path)
    for part in range(20):
        path.write_bytes(cut := data[: len(data) * part // 20])
        assert read_header(str(path), len(cut)) is None, part
    draws = np.random.default_rng(1)
    for _ in range(200):
        changed = bytearray(data)
        changed[int(draws.integers(0, min(len(data), 400)))] = int(draws.integers(0, 256))
        path.write_bytes(changed)
        quick = read_header(str(path), len(changed))
        if quick is not None and (quick[:2], quick[2]) != (whole.size, whole.has_alpha):
            try:  # the header itself was changed, to another that is right in itself
                assert (quick[:2], quick[2]) == ((header := probe(path)).size, header.has_alpha)
            except PictureProblem as problem:
                assert "damaged" in str(problem) or "pixels" in str(problem)


# Odd files and names


def test_pictures_that_share_a_name_are_both_named(picture, plan):
    picture("1_cat/a.png"), picture("1_cat/a.jpg"), picture("1_cat/b.png")
    assert "a.jpg and a.png" in texts(plan(), "error")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_in_circles_and_to_folders_above(tmp_path, picture, plan):
    folder = picture("2_cat/a.png").parent
    (folder / "b.png").symlink_to(folder / "b.png")
    (folder / "c").symlink_to(folder)
    (folder.parent / "3_up").symlink_to(folder.parent)
    (folder.parent / "4_again").symlink_to(folder)
    (folder.parent / "5_self").symlink_to(folder.parent / "5_self")
    made = plan(on_bad_image="skip")
    assert [sample.path.name for sample in made.samples] == ["a.png"]
    assert "b.png" in texts(made, "warning")
    assert "3_up, 4_again" in texts(made, "warning")


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
@pytest.mark.parametrize(
    "name", ["a\nb.png", "é" * 125 + ".png", "a .png", " a.png", "a.b.c.png", "family👪.png", "\\.png"]
)
def test_odd_names_are_pictures_and_messages_stay_one_line(picture, plan, name):
    path = picture(f"1_cat \n/{name}")
    (path.parent / f"{name[:-4]}.txt").write_text("hello", encoding="utf-8")
    made = plan()
    assert [(sample.path.name, sample.caption) for sample in made.samples] == [(name, "hello")]
    path.write_bytes(b"")
    for told in (plan(), plan(on_bad_image="skip")):
        assert all(str(problem).isprintable() for problem in told.problems)
        assert all(line.isprintable() for line in told.lines())
        assert told.bad_pictures == (path,)


@pytest.mark.skipif(os.name != "posix" or os.uname().sysname == "Darwin", reason="names are text there")
def test_names_that_are_no_text(picture, plan):
    path = picture("1_cat/a.png")
    odd = os.fsencode(path.parent) + b"/\xff\xfe.png"
    os.link(path, odd)
    made = plan()
    assert len(made.samples) == 2
    assert all(line.encode("utf-8") for line in made.lines())
    Path(os.fsdecode(odd)).unlink()
    os.close(os.open(odd, os.O_CREAT))
    assert str(plan().problems).encode("utf-8")
    assert "\\udcff" in texts(plan(), "error")


def test_hidden_and_blank_names_are_said(picture, plan):
    folder = picture("1_cat/a.png").parent
    for name in (".hidden.png", "._a.png", ".DS_Store", *([] if os.name == "nt" else ["b.png "])):
        (folder / name).write_bytes(b"x")
    made = plan()
    assert len(made.samples) == 1
    assert "1 hidden picture" in texts(made, "note") and ".hidden.png" in texts(made, "note")
    assert os.name == "nt" or "a blank around the name" in texts(made, "warning")


@pytest.mark.parametrize("suffix", [".TXT", ".Txt", ".txt"])
def test_suffixes_in_any_case(picture, plan, suffix):
    path = picture("1_cat/a.PNG")
    path.with_suffix(suffix).write_text("hello", encoding="utf-8")
    assert [sample.caption for sample in plan().samples] == ["hello"]


def test_empty_and_cut_and_mislabelled_files_are_counted_and_named(picture, plan):
    good = picture("1_cat/good.png")
    folder = good.parent
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "cut.png").write_bytes(good.read_bytes()[:-30])
    (folder / "text.png").write_text("no picture", encoding="utf-8")
    (folder / "really a png.jpg").write_bytes(picture("1_cat/other.png").read_bytes())
    message = texts(plan(), "error")
    for name, word in {"empty.jpg": "is empty", "cut.png": "is cut off", "text.png": "is not a picture"}.items():
        assert f"{name} {word}" in message
    made = plan(on_bad_image="skip")
    assert {sample.path.name for sample in made.samples} == {"good.png", "other.png", "really a png.jpg"}
    assert made.summary()["folders"][0]["bad"] == 3


def test_a_picture_that_is_too_large_is_said_before_the_run(picture, plan):
    path = picture("1_cat/a.bmp")
    sizes = struct.pack("<IiiHHIIiiII", 40, 20_000, 20_000, 1, 24, 0, 0, 0, 0, 0, 0)
    path.write_bytes(struct.pack("<2sIII", b"BM", 54, 0, 54) + sizes)
    assert "has 400 million pixels, more than the limit of 300" in texts(plan(), "error")


def test_long_looks_say_how_far_they_are(monkeypatch, caplog, ten_pictures, plan):
    monkeypatch.setattr(scan, "PROGRESS_SECONDS", 0.0)
    with caplog.at_level("INFO"):
        plan()
    assert "looked at 10 of 10 pictures" in caplog.text


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_200_damaged_files_of_a_format_never_stop_a_plan(tmp_path, picture, plan, form):
    """Cut, or with bytes changed: a picture that the plan keeps can be loaded, or says why not when it is."""
    from sd_scripts.data.pictures import load_picture

    good = saved("RGB", form, size=(40, 30))
    folder = picture("1_cat/whole.png").parent
    draws = np.random.default_rng(3)
    for number in range(200):
        data = bytearray(good)
        for _ in range(int(draws.integers(0, 6))):
            data[int(draws.integers(0, len(data)))] = int(draws.integers(0, 256))
        cut = len(data) if number % 2 else int(draws.integers(0, len(data)))
        (folder / f"{number}{'.png' if form == 'GIF' else '.' + form.lower()}").write_bytes(data[:cut])
    made = plan(on_bad_image="skip")
    assert len(made.samples) + len(made.bad_pictures) == 201
    assert len(made.bad_pictures) >= 50
    for sample in made.samples:
        try:
            load_picture(sample, made.subsets[0].options)
        except PictureProblem as problem:
            assert str(problem)
    assert len(texts(plan(), "error").splitlines()) == 21


@pytest.mark.parametrize(
    ("text", "expected"), [("a\nb", "a\\nb"), ("ü 🐈", "ü 🐈"), ("a\udcff", "a\\udcff"), ("\x1b[2J", "\\x1b[2J")]
)
def test_names_in_messages(text, expected):
    assert shown(text) == expected


# The index


def settle(folder) -> None:
    """As if the files had been there for a while."""
    past = time.time() - 100
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (past, past))


@pytest.fixture
def looked_at(monkeypatch) -> list[str]:
    """Names of the files that are opened by the scan."""
    names: list[str] = []
    read, text = scan.read_header, scan._read_text
    monkeypatch.setattr(scan, "read_header", lambda path, size: names.append(Path(path).name) or read(path, size))
    monkeypatch.setattr(scan, "_read_text", lambda path: names.append(Path(path).name) or text(path))
    return names


def facts(plan) -> list:
    return [(s.path, s.size, s.lines, s.fit, s.bytes, s.mtime_ns, s.mask) for s in plan.samples]


def test_a_second_start_opens_no_file(tmp_path, ten_pictures, plan, looked_at):
    settle(tmp_path / "train")
    first = plan()
    assert len(looked_at) == 20 and not first.is_index_used
    looked_at.clear()
    second = plan()
    assert looked_at == [] and second.is_index_used
    assert facts(second) == facts(first)


def test_what_changed_is_looked_at_again(tmp_path, picture, ten_pictures, plan, looked_at):
    folder = tmp_path / "train" / "3_cat"
    settle(tmp_path / "train")
    plan()
    looked_at.clear()
    Image.new("RGB", (80, 80)).save(folder / "p1.png")
    (folder / "p2.txt").write_text("new", encoding="utf-8")
    (folder / "p3.png").unlink()
    picture("3_cat/q.png")
    made = plan()
    assert sorted(set(looked_at)) == ["p1.png", "p2.txt", "q.png"]
    by_name = {sample.path.name: sample for sample in made.samples}
    assert by_name["p1.png"].size == (80, 80)
    assert by_name["p2.png"].caption == "new"
    assert "p3.png" not in by_name and "q.png" in by_name


def test_files_that_just_changed_are_looked_at_again(ten_pictures, plan, looked_at):
    plan()
    looked_at.clear()
    plan()
    assert len(looked_at) == 20


def test_a_trusted_index_is_used_while_no_name_changes(tmp_path, picture, ten_pictures, plan, looked_at):
    folder = tmp_path / "train" / "3_cat"
    settle(tmp_path / "train")
    first = plan(cache_info=True)
    looked_at.clear()
    before = folder.stat()
    (folder / "p2.txt").write_text("edited", encoding="utf-8")
    assert facts(plan(cache_info=True)) == facts(first)
    assert looked_at == []
    picture("3_cat/q.png")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    made = plan(cache_info=True)
    assert len(made.samples) == 11
    assert {sample.path.name: sample.caption for sample in made.samples}["p2.png"] == "edited"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 99}', b"\xff\xfe"])
def test_a_damaged_index_is_made_anew(tmp_path, ten_pictures, plan, own_cache_folder, content):
    settle(tmp_path / "train")
    first = plan()
    for path in own_cache_folder.iterdir():
        path.write_bytes(content)
    assert facts(plan()) == facts(first)
    assert plan().is_index_used


def test_without_a_place_for_the_index_all_works(tmp_path, ten_pictures, plan, own_cache_folder):
    own_cache_folder.parent.mkdir()
    own_cache_folder.write_text("a file where the folder should be", encoding="utf-8")
    assert len(plan().samples) == 10
    assert not plan().is_index_used


def test_bad_pictures_are_looked_at_each_time(tmp_path, picture, plan):
    path = picture("1_cat/a.png")
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    settle(tmp_path / "train")
    for _ in range(2):
        assert "is cut off" in texts(plan(cache_info=True), "error")
    path.write_bytes(data)
    settle(tmp_path / "train")
    assert len(plan(cache_info=True).samples) == 1


def test_the_oldest_indexes_go(tmp_path, monkeypatch, own_cache_folder):
    monkeypatch.setattr(scan_index, "MOST_INDEXES", 3)
    for number in range(6):
        scan_index.save_index(tmp_path / str(number), scan_index.FolderIndex())
        past = time.time() - 100 + number
        os.utime(scan_index.index_path(tmp_path / str(number)), (past, past))
    assert len(list(own_cache_folder.iterdir())) == 3
    assert scan_index.index_path(tmp_path / "5").exists()


def test_slow_disks_are_read_in_threads(monkeypatch, picture, plan):
    import threading

    for number in range(40):
        path = picture(f"1_cat/{number}.png", caption=f"cat {number}")
        path.write_bytes(path.read_bytes() + bytes(number) + path.read_bytes()[-12:])
    monkeypatch.setattr(parallel, "SLOW_READ", 0.0)
    threads = set()
    read = scan.read_header
    monkeypatch.setattr(scan, "read_header", lambda *of: threads.add(threading.get_ident()) or read(*of))
    made = plan(validation_split=0.1)
    assert len(made.samples) == 36
    assert [sample.caption for sample in made.samples] == [f"cat {sample.path.stem}" for sample in made.samples]
    assert len(threads) > 1
