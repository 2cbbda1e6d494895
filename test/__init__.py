"""Tests; a package so that `test.tiny` is found before the standard library's own `test`."""
