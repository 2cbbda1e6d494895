import random

import pytest

from sd_scripts.data.faces import Face, face_in, fit_face, parse_range


@pytest.mark.parametrize(
    ("stem", "face"),
    [
        ("photo_300_200_80_100", Face(300, 200, 80, 100)),
        ("my_photo_1_2_3_4", Face(1, 2, 3, 4)),
        ("photo_300_200_80", None),
        ("300_200_80_100", None),
        ("photo_3000_200_80_100", None),  # outside the picture
        ("photo_300_200_0_100", None),
        ("img_0512x0768", None),
    ],
)
def test_the_face_stands_in_the_name(stem, face):
    assert face_in(stem, (800, 600)) == face


@pytest.mark.parametrize(
    ("text", "limits"),
    [("1.0,3.0", (1, 3)), ("2", None), ("3,1", None), ("0,1", None), ("2,2", (2, 2)), ("[1, 3]", (1, 3)), ("a,b", None),
     ("1,inf", None), ("nan,2", None), ("1,2,3", None)],
)  # fmt: skip
def test_range(text, limits):
    assert parse_range(text) == limits


FACE = Face(600, 500, 100, 120)


@pytest.mark.parametrize("size", [(1200, 900), (900, 1200), (700, 700)])
@pytest.mark.parametrize("limits", [(1.0, 3.0), (2.0, 2.0), (0.1, 50.0)])
@pytest.mark.parametrize("bucket", [(256, 256), (192, 320), (1024, 512)])
@pytest.mark.parametrize("is_random", [False, True])
def test_the_cut_lies_in_the_picture_and_is_never_enlarged_without_need(size, limits, bucket, is_random):
    whole = max(bucket[0] / size[0], bucket[1] / size[1])
    for at in range(50):
        resized, offset = fit_face(size, bucket, FACE, limits, random.Random(at), is_random=is_random)
        for length, start, want, side in zip(resized, offset, bucket, size, strict=True):
            assert 0 <= start <= length - want
            assert abs(length / side - resized[0] / size[0]) < 0.01  # the shape stays
        assert resized[0] / size[0] <= max(1.0, whole) + 0.01


def test_the_cut_is_so_many_faces_wide_with_the_face_in_the_middle():
    scales = []
    for at in range(200):
        (width, _), (x, y) = fit_face((1200, 900), (256, 256), FACE, (2.5, 5.0), random.Random(at))
        scale = width / 1200
        scales.append(256 / (FACE.side * scale))  # the cut's side in faces
        assert abs((x + 128) / scale - FACE.x) < FACE.side / 10
        assert abs((y + 128) / scale - FACE.y) < FACE.side / 10
    assert 2.49 < min(scales) < 2.7
    assert 4.5 < max(scales) < 5.01


def test_a_random_cut_still_favours_the_face():
    starts = [
        fit_face((1200, 900), (256, 256), FACE, (2.5, 2.5), random.Random(at), is_random=True)[1] for at in range(400)
    ]
    fixed = fit_face((1200, 900), (256, 256), FACE, (2.5, 2.5), random.Random(0))[1]
    assert len(set(starts)) > 100
    assert abs(sum(x for x, _ in starts) / 400 - fixed[0]) < 60
