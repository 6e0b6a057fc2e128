"""Flags of the model server: what they mean, and that the reference has all of them."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from cloud_ml.net.connection_bounds import ConnectionBounds
from cloud_ml.serving.flags import add_life, life_of
from cloud_ml.serving.versions.model_config import ModelConfig
from cloud_ml.serving.versions.version_manager import Rules

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "serving-models.md"


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_life(made)
    return made


def test_the_reference_has_every_flag(parser: argparse.ArgumentParser) -> None:
    page = PAGE.read_text()
    flags = [each.option_strings[-1] for each in parser._actions if each.dest != "help"]
    assert [flag for flag in flags if f"`{flag}`" not in page] == []
    assert len(flags) > 10


def test_one_model_with_everything_else_as_it_is_by_default(
    parser: argparse.ArgumentParser,
) -> None:
    made = life_of(parser, parser.parse_args(["--model_base_path", "/models/m"]))
    assert made["models"] == {"default": ModelConfig("default", Path("/models/m"))}
    assert made["rules"] == Rules()
    assert (made["warm_up"], made["allow_model_control"], made["tls_file"]) == (True, False, None)


def test_bounds_of_connections_are_settings(parser: argparse.ArgumentParser) -> None:
    one = ["--model_base_path", "/models/m"]
    assert life_of(parser, parser.parse_args(one))["connections"] == ConnectionBounds()
    names = (
        "turn_units dropped_body_bytes head_bytes empty_frames kept_head_bytes http1_head_seconds"
    )
    names += " http1_body_seconds http1_idle_seconds http1_pipelined"
    names += " http1_linger_seconds greeting_seconds http2_max_streams http2_window_bytes"
    names += " http2_head_seconds http2_body_seconds http2_unread_seconds http2_idle_seconds stream_unread_bytes"
    values = [70_000 + place for place in range(len(dataclasses.fields(ConnectionBounds)))]
    more = [f"--{name}={value}" for name, value in zip(names.split(), values, strict=True)]
    assert life_of(parser, parser.parse_args(one + more))["connections"] == ConnectionBounds(
        *values
    )
    with pytest.raises(SystemExit):
        parser.parse_args([*one, "--turn_units=0"])
    for size in ("65535", "2147483648"):
        with pytest.raises(SystemExit):
            parser.parse_args([*one, f"--http2_window_bytes={size}"])


def test_micros_and_words_are_understood(parser: argparse.ArgumentParser) -> None:
    flags = [
        "--model_config_file",
        "/m",
        "--load_retry_interval_micros",
        "1500000",
        "--enable_model_warmup=false",
    ]
    made = life_of(parser, parser.parse_args(flags))
    assert (made["rules"].retry_s, made["warm_up"], made["models"]) == (1.5, False, {})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", "give --model_base_path for one model, or --model_config_file for several"),
        ("--model_base_path /a --model_config_file /b", "give --model_base_path for one model"),
        ("--model_base_path /a --num_load_threads 0", "'0' is less than 1"),
        ("--model_base_path /a --version_settle_seconds -1", "'-1' is not a number of seconds"),
        ("--model_base_path /a --enable_model_warmup maybe", "'maybe' is neither true nor false"),
    ],
)
def test_a_mistake_is_told(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], flags: str, words: str
) -> None:
    with pytest.raises(SystemExit):
        life_of(parser, parser.parse_args(flags.split()))
    assert words in capsys.readouterr().err
